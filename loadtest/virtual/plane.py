"""A whole plane in virtual time: load, pools, machines, and the autoscaler that looks at them."""

import random
from collections.abc import Callable, Mapping, Sequence

from loadtest.virtual.calendar import Calendar
from loadtest.virtual.machines import Machines
from loadtest.virtual.model import Model
from loadtest.virtual.pipeline import Pipeline
from loadtest.virtual.pool import Pool
from loadtest.virtual.runs import Runs
from schemas.base import Priority
from services.autoscaler.domain.arrivals import Arrivals
from services.autoscaler.domain.control import Control, Plan, Scaled
from services.autoscaler.domain.hosts import Room
from services.autoscaler.domain.observation import FleetSeen, LaneSeen, Observation
from services.autoscaler.domain.rates import arrivals_per_s, long_ms
from services.autoscaler.domain.rules import Rules

LOOK_S = 1.0
MACHINE = Room(cpu=64.0, memory=512 << 30)
Rate = Callable[[float], float]
"""Requests a second, at a time."""


class Plane:
    """`began`: the virtual second in which it starts, of an epoch that began on a Thursday."""

    def __init__(
        self,
        models: Sequence[Model],
        rules: Mapping[str, Rules],
        control: Control,
        *,
        seed: int = 0,
        machines: int = 4,
        look_s: float = LOOK_S,
        began_s: float = 0.0,
    ) -> None:
        self.calendar = Calendar()
        self.calendar.now_s = began_s
        self.dice = random.Random(seed)
        self.pools = {model.name: Pool(model, self.calendar, self.dice) for model in models}
        self.machines = Machines([f"machine-{number}" for number in range(machines)], MACHINE, self.pools)
        self.runs = Runs(self.pools, self.calendar, self.dice, control.open_runs)
        self.control = control
        self.is_blind = False
        """The lag cannot be read."""
        self.plan: Plan | None = None
        self._arrivals = {name: Arrivals() for name in self.pools}
        self._windows_ms = {name: long_ms(round(1_000 * rules[name].cooldown_s)) for name in self.pools}
        self._watchers: list[Callable[[Plan], None]] = []
        self._scaled = [Scaled(model.name, model.name, rules[model.name], model.resources) for model in models]
        control.watch(self._scaled)
        self.calendar.every(look_s, self._look)

    def lead(self, control: Control) -> None:
        """Another autoscaler leads from now on. It has read no event yet."""
        control.watch(self._scaled)
        self.control = control
        self.runs.tell(control.open_runs)

    def watch(self, watcher: Callable[[Plan], None]) -> None:
        """Somebody to tell of every look."""
        self._watchers.append(watcher)

    def load(self, pipeline: Pipeline, rate: Rate, most_per_s: float, until_s: float) -> None:
        """Requests that come independently of each other (Poisson), at a rate that may change: the most, thinned."""

        def arrive() -> None:
            now_s = self.calendar.now_s
            if self.dice.random() * most_per_s < rate(now_s):
                self.runs.start(pipeline)
            next_s = now_s + self.dice.expovariate(most_per_s)
            if next_s < until_s:
                self.calendar.at(next_s, arrive)

        self.calendar.after(self.dice.expovariate(most_per_s), arrive)

    def _look(self) -> None:
        now_ms = round(self.calendar.now_s * 1_000)
        seen = {name: self._observe(name, pool, now_ms) for name, pool in self.pools.items()}
        self.plan = self.control.look(seen, self.machines.announced(now_ms), self.calendar.now_s)
        self.machines.follow(self.plan.layout)
        for watcher in self._watchers:
            watcher(self.plan)

    def _observe(self, name: str, pool: Pool, now_ms: int) -> Observation:
        busy = sum(replica.busy for replica in pool.replicas if replica.state == "warm")
        fleet = FleetSeen(
            pool.count("warm"), pool.count("starting"), pool.count("asleep"), pool.count("draining"), busy
        )
        if self.is_blind:
            return Observation({Priority.STANDARD: LaneSeen(None, None)}, pool.usual_service_s, fleet)
        self._arrivals[name].observe(pool.arrived, now_ms)
        lane = LaneSeen(arrivals_per_s([self._arrivals[name]], self._windows_ms[name]), pool.outstanding)
        return Observation({Priority.STANDARD: lane}, pool.usual_service_s, fleet, pool.model.load_s)
