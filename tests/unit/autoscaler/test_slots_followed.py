"""Workers say how many slots they can use, and that is how many are counted on: a loop that must come to rest."""

import math
import random
from collections.abc import Callable

import pytest

from schemas.base import Priority
from schemas.fleet import WorkerStatus
from schemas.models import ModelClass, Queue, queues
from services.autoscaler.domain.control import Control, Scaled
from services.autoscaler.domain.explanation import explain
from services.autoscaler.domain.fleet import fleet_seen, service_s
from services.autoscaler.domain.observation import FleetSeen, LaneSeen, Observation
from services.worker.domain.engine import Load
from services.worker.domain.slot_limit import LOOK_EVERY_S, SlotLimit
from tests.unit.autoscaler.observed import seen

SLOTS, CEILING = 16, 12
START_LOOKS = 20
"""Half a minute from a decision to a worker."""
LAST = 800
"""Looks of the last twenty minutes."""
COMMITTED = dict.fromkeys(range(26), 0)
HOSTED = {"kind": "openai", "base_url": "http://localhost/v1", "model": "m"}
OWN = {"kind": "llamacpp", "model": "m"}


def queue(engine: object) -> Queue:
    backend = {"name": "b", "engine": engine}
    lanes = {"interactive": "0-11", "standard": "12-23", "batch": "24-25"}
    scaling = {"max_replicas": CEILING, "tier": "zero", "cooldown": "60s"}
    written = {"backends": [backend], "slots": SLOTS, "lanes": lanes, "scaling": scaling}
    return next(queues({"llm": ModelClass.model_validate(written)}))


def status(slots: int, state: str = "warm", **more: object) -> WorkerStatus:
    """Of a worker that has every partition, and nothing to do."""
    named = {"instance": "w", "host": "h", "model_class": "llm", "backend": "b", "state": state, "slots": slots}
    return WorkerStatus.model_validate({**named, "busy": 0, "committed": COMMITTED, **more})


BASE = status(SLOTS)


def test_a_queue_has_the_mean_of_what_its_warm_workers_can_use() -> None:
    workers = [status(4), status(10), status(1, "starting"), status(1, "draining"), status(1, "asleep")]
    assert fleet_seen(queue(OWN), workers, ()).slots == 7.0
    assert fleet_seen(queue(OWN), workers[2:], ()).slots is None


@pytest.mark.parametrize(
    ("engine", "counts"),
    [
        (OWN, True),
        ({"kind": "simulated"}, True),
        (HOSTED, False),
        ({"kind": "http", "url": "http://localhost", "health_input": {}}, False),
        ({"kind": "triton", "address": "localhost:1", "model": "m"}, False),
    ],
    ids=lambda value: str(value.get("kind")) if isinstance(value, dict) else "",
)
def test_of_a_server_that_all_share_a_worker_more_makes_no_more(engine: object, *, counts: bool) -> None:
    assert (fleet_seen(queue(engine), [status(4)], ()).slots is not None) == counts


def decided(fleet: FleetSeen, times: int = 1, rate: float = 12.0) -> list[int]:
    control = Control(predicts=False)
    scaled = Scaled.of(queue(OWN))
    control.watch([scaled])
    plans = [control.look({"llm": seen(rate, fleet=fleet)}, None, float(second)) for second in range(times)]
    return [plan.decisions["llm"].replicas for plan in plans]


def test_workers_that_can_use_fewer_slots_are_more() -> None:
    assert decided(FleetSeen(warm=1, slots=16.0)) == [1]
    assert decided(FleetSeen(warm=1, slots=4.0)) == [4]


def test_never_more_than_are_configured_are_counted_on() -> None:
    assert decided(FleetSeen(warm=1, slots=64.0), rate=24.0) == [2]


def test_what_is_in_flight_needs_the_workers_that_it_is_on_and_no_others() -> None:
    """All sixteen were begun before the engine said that four are enough."""
    assert decided(FleetSeen(warm=1, slots=4.0, busy=16), rate=1.0) == [1]


def test_how_many_slots_were_counted_on_is_explained() -> None:
    control = Control(predicts=False)
    control.watch([Scaled.of(queue(OWN))])
    plan = control.look({"llm": seen(12.0, fleet=FleetSeen(warm=1, slots=4.0))}, None, 0.0)
    assert any("/ 4 slots" in line.how for line in explain(plan.decisions["llm"]))


class Plant:
    """A class under load, its workers' engines, and the autoscaler: look by look. A call takes a second."""

    def __init__(self, of: Queue, takes: Callable[[int], float], work: float, seed: int = 0) -> None:
        """`takes`: calls that an engine works on at once, given so many workers; `work`: tasks that come a second."""
        self._queue = of
        self._takes = takes
        self._work = work
        self._dice = random.Random(seed)
        self._control = Control(predicts=False)
        self._control.watch([Scaled.of(of)])
        self._limits = [SlotLimit(SLOTS)]
        self.waiting = 0.0
        self.decided = [1]

    def run(self, minutes: int) -> list[int]:
        """How many workers were decided on, look by look."""
        for _ in range(round(minutes * 60 / LOOK_EVERY_S)):
            self._look()
        return self.decided

    def _look(self) -> None:
        wanted = self.decided[max(0, len(self.decided) - START_LOOKS)]
        self._limits = self._limits[:wanted] + [SlotLimit(SLOTS) for _ in range(wanted - len(self._limits))]
        takes, coming = self._takes(wanted), self._work * self._dice.uniform(0.9, 1.1)
        busy = [self._busy(limit.usable, takes, coming / wanted) for limit in self._limits]
        done = sum(min(each, takes) for each in busy)
        self.waiting = max(0.0, self.waiting + (coming - done) * LOOK_EVERY_S)
        workers = [
            BASE.model_copy(
                update={"slots": limit.usable, "busy": each, "service_ms": 1_000 * max(1.0, each / takes)}
            )
            for limit, each in zip(self._limits, busy, strict=True)
        ]
        lane = LaneSeen(self._work, round(self.waiting + sum(busy)))
        lanes = {of: lane if of is Priority.STANDARD else LaneSeen(0.0, 0) for of in Priority}
        observation = Observation(lanes, service_s(self._queue, workers), fleet_seen(self._queue, workers, ()))
        plan = self._control.look({"llm": observation}, None, len(self.decided) * LOOK_EVERY_S)
        self.decided.append(max(1, plan.decisions["llm"].replicas))
        for limit, each in zip(self._limits, busy, strict=True):
            load = Load(round(min(each, takes)), max(0, round(each - takes)))
            limit.look(each, load, wants_more=each >= limit.usable)

    def _busy(self, usable: int, takes: float, share: float) -> int:
        """What waits fills every slot; so does what comes, within a look, where it is more than the engine takes."""
        return usable if self.waiting or share > min(usable, takes) else math.ceil(share)


@pytest.mark.parametrize(("takes", "work", "replicas"), [(3, 7.0, 3), (6, 20.0, 5), (11, 20.0, 3), (16, 20.0, 2)])
def test_engines_that_take_fewer_calls_than_they_have_slots_are_more_and_stay_as_many(
    takes: int, work: float, replicas: int
) -> None:
    """What an engine takes does not depend on how many there are: nothing comes back to what it began with."""
    plant = Plant(queue(OWN), lambda _: takes, work)
    decided = plant.run(minutes=40)
    assert set(decided[-LAST:]) == {replicas}
    assert plant.waiting == 0.0
    assert work < replicas * takes < 2 * work


def test_a_server_that_all_share_is_asked_by_no_more_workers_when_it_is_full() -> None:
    """Each would have fewer slots for it, and so on up to the ceiling."""
    shared = Plant(queue(HOSTED), lambda workers: 24 / workers, work=23.0).run(minutes=40)
    assert max(shared) <= 3
    as_if_own = Plant(queue(OWN), lambda workers: 24 / workers, work=23.0).run(minutes=40)
    assert max(as_if_own) == CEILING, "counted on, they do run away"
