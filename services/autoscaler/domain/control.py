"""The whole way from what is seen to what hosts are told: analyzer, floors, policy, placement, look after look.

Pure but for its memory: no clock, no topic. The service gives it what its collector saw, a simulation what it made.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.fleet import ScalingDecision
from schemas.graphs import Step
from schemas.models import SPILL_AT, Queue, Resources
from schemas.tasks import Price
from services.autoscaler.domain.branches import Branches, backend_of
from services.autoscaler.domain.demand import analyze
from services.autoscaler.domain.false_warms import FalseWarms
from services.autoscaler.domain.hosts import Host, Need
from services.autoscaler.domain.layout import Layout, as_running
from services.autoscaler.domain.learned import MAX_QUEUES, NOTHING_LEARNED, LearnedQueue, LearnedState
from services.autoscaler.domain.likely import Backing, likely
from services.autoscaler.domain.observation import UNSEEN, Observation
from services.autoscaler.domain.open_runs import OpenRuns
from services.autoscaler.domain.placement import place
from services.autoscaler.domain.policy import IDLE, Decision, decide
from services.autoscaler.domain.prediction import Prediction, SlotMean
from services.autoscaler.domain.prewarm import prewarmed
from services.autoscaler.domain.rules import Floor, Rules, Tier
from services.autoscaler.domain.schedules import Schedule, scheduled
from services.autoscaler.domain.steadiness import Steadied


class Scaled(NamedTuple):
    """A queue, as far as scaling is concerned."""

    label: str
    model_class: str
    rules: Rules
    resources: Resources = Resources()
    schedules: tuple[Schedule, ...] = ()
    backend: str = ""
    price: Price = Price()

    @classmethod
    def of(cls, queue: Queue, tier: Tier | None = None) -> "Scaled":
        """What the configuration says; `tier`: what a budget says instead."""
        schedules = tuple(
            Schedule(spec.cron, spec.timezone, spec.duration / 1_000, spec.min_replicas)
            for spec in queue.scaling.schedules
        )
        rules = Rules.of(queue, tier)
        return cls(queue.label, queue.model_class, rules, queue.resources, schedules, queue.backend, queue.price)


class Plan(NamedTuple):
    """What a look has come to."""

    decisions: Mapping[str, Decision]
    """By queue label; a queue of which nothing was ever known has none."""
    layout: Layout


SMOOTHING = 0.02
"""How much of the way to a new service time one look goes: all terms have it as a factor, so its noise is theirs."""

FORGET_EVERY_S = 60.0
"""Runs whose end was not seen."""


@dataclass(slots=True)
class _Known:
    """What is remembered of a queue."""

    service_s: float | None = None
    start_s: float = 0.0
    slots: float | None = None
    """That a worker can use; without one it is not known: the next finds out for itself."""
    prediction: Prediction = field(default_factory=Prediction)
    slot: SlotMean = field(default_factory=SlotMean)
    is_staffed: bool = False
    decision: Decision | None = None

    @classmethod
    def of(cls, learned: LearnedQueue) -> "_Known":
        """What an earlier leader knew; a decision it made is none of this one's."""
        return cls(learned.service_s, learned.start_s, prediction=learned.prediction())

    def learned(self) -> LearnedQueue:
        """What a later leader shall know."""
        return LearnedQueue.of(self.service_s, self.start_s, self.prediction)

    def learn(self, seen: Observation, now_s: float) -> None:
        """What outlives the look: no worker may be there to tell it at the next one."""
        self.service_s = _smoothed(self.service_s, seen.service_s)
        self.start_s = self.start_s if seen.start_s is None else seen.start_s
        if seen.fleet:
            self.slots = seen.fleet.slots and _smoothed(self.slots, seen.fleet.slots)
        self.is_staffed = bool(seen.fleet.coming_or_here) if seen.fleet else self.is_staffed
        over = self.slot.observe(now_s, seen.arrivals_per_s)
        if over:
            self.prediction.learn(*over)


class Control:
    """Decides for all queues."""

    def __init__(
        self, *, prewarms: bool = True, predicts: bool = True, before: LearnedState = NOTHING_LEARNED
    ) -> None:
        """`before`: what an earlier leader has learned."""
        self._before = before
        self._branches = Branches()
        self._branches.recall(before.steps)
        self.open_runs = OpenRuns(self._branches)
        self.false_warms = FalseWarms()
        self._prewarms = prewarms
        self._predicts = predicts
        self._queues: Sequence[Scaled] = ()
        self._backends: Mapping[str, Sequence[Scaled]] = {}
        """By model class."""
        self._labels: Mapping[str, str] = {}
        """By `class.backend`: a class's first backend is named like the class."""
        self._coming: Mapping[str, float] = {}
        """By model class, how often the runs that start will call it, in a second."""
        self._known: dict[str, _Known] = {}
        self._prewarmed: Mapping[str, Floor] = {}
        self._layout = Layout()
        self._forgot_s = 0.0

    def watch(self, queues: Sequence[Scaled]) -> None:
        """Takes another configuration; what is known of queues that stay is kept. The first are placed first."""
        self._before = self.learned()  # of queues that go, too
        self._queues = queues
        self._backends = {of: [queue for queue in queues if queue.model_class == of] for of in _classes(queues)}
        self._labels = {f"{queue.model_class}.{queue.backend}": queue.label for queue in queues}
        self._known = {queue.label: self._known.get(queue.label) or self._recalled(queue.label) for queue in queues}

    def take_up(self, decided: Mapping[str, ScalingDecision]) -> None:
        """Goes on where the leader before has stopped, a moment ago. By queue label."""
        rules = {queue.label: queue.rules for queue in self._queues}
        for label in decided.keys() & rules.keys():
            told = decided[label]
            if told.steady is not None:
                steady = Steadied.of(told.steady)
                self._known[label].decision = Decision(told.replicas, told.asleep, IDLE, steady, (), rules[label])

    def look(self, seen: Mapping[str, Observation], hosts: Sequence[Host] | None, now_s: float) -> Plan:
        """`seen`: by queue label. `now_s`: the log's time, in seconds since the epoch.

        `hosts` is None where they are not heard, or somebody else places: the last layout holds.
        """
        self._forget(now_s)
        for queue in self._queues:
            self._known[queue.label].learn(seen.get(queue.label, UNSEEN), now_s)
        self._coming = self.open_runs.calls_per_s(round(now_s * 1_000)) if self._prewarms else {}
        self._prewarmed = self._to_prewarm()
        for queue in self._queues:
            known_coming = self._coming.get(queue.model_class) if self._is_told_by_graphs(queue) else None
            self._decide(queue, seen.get(queue.label, UNSEEN)._replace(coming_per_s=known_coming), now_s)
        self._count_false_warms(seen)
        if hosts is not None:
            self._layout = self._place(hosts, now_s)
        decisions = {label: known.decision for label, known in self._known.items() if known.decision}
        return Plan(decisions, self._layout)

    @property
    def predictions(self) -> Mapping[str, Prediction]:
        """Of all queues."""
        return {label: known.prediction for label, known in self._known.items()}

    def start_s(self, label: str) -> float | None:
        """How long a worker of a queue takes until it is ready; None where none was ever seen to start."""
        known = self._known.get(label)
        return known.start_s or None if known else None

    def learned(self) -> LearnedState:
        """What a later leader shall know, of queues that are not configured just now, too."""
        queues = self._before.queues | {label: known.learned() for label, known in self._known.items()}
        newest = dict(list(queues.items())[-MAX_QUEUES:])
        return LearnedState(queues=newest, steps=self._branches.learned())

    def _recalled(self, label: str) -> _Known:
        learned = self._before.queues.get(label)
        return _Known.of(learned) if learned else _Known()

    def prediction(self, label: str) -> Prediction:
        """Of one queue: its season and its error."""
        return self._known[label].prediction

    def _forget(self, now_s: float) -> None:
        if now_s - self._forgot_s >= FORGET_EVERY_S:
            self.open_runs.forget_overdue(now_s * 1_000)
            self._forgot_s = now_s

    def _to_prewarm(self) -> Mapping[str, Floor]:
        return prewarmed(self.open_runs.needs(self.label_of), self._prewarmed) if self._prewarms else {}

    def label_of(self, step: Step) -> str:
        """The queue that a step's calls go to, as far as can be told before the first."""
        target = step.chain[0]
        backends = self._backends.get(str(target.model_class), ())
        if target.backend or len(backends) < 2:
            return self._labels.get(backend_of(step), backend_of(step))
        budget_s = math.inf if step.timeout_ms is None else SPILL_AT * step.timeout_ms / 1_000
        calls_per_s = self._coming.get(str(target.model_class), 0.0)
        return likely([self._backing(queue) for queue in backends], calls_per_s, budget_s).label

    def _backing(self, queue: Scaled) -> Backing:
        known = self._known[queue.label]
        return Backing(queue.label, queue.price, known.is_staffed, known.start_s)

    def _is_told_by_graphs(self, queue: Scaled) -> bool:
        """Whether what runs will call comes to this queue, all of it, and likely enough that one is there for it."""
        return len(self._backends[queue.model_class]) == 1 and queue.label in self._prewarmed

    def _decide(self, queue: Scaled, seen: Observation, now_s: float) -> None:
        known = self._known[queue.label]
        fleet = seen.fleet and seen.fleet._replace(slots=known.slots)
        analysis = analyze(seen._replace(service_s=known.service_s, fleet=fleet, start_s=known.start_s))
        known.decision = decide(queue.rules, analysis, self._floors(queue, known, now_s), known.decision, now_s)

    def _floors(self, queue: Scaled, known: _Known, now_s: float) -> list[Floor]:
        floors = scheduled(queue.schedules, now_s, known.start_s)
        if queue.label in self._prewarmed:
            floors.append(self._prewarmed[queue.label])
        if self._predicts and known.service_s is not None:
            slots = queue.rules.usable(known.slots)
            floor = known.prediction.floor(now_s, known.start_s, known.service_s, slots, queue.rules.ceiling)
            floors.append(floor)
        return floors

    def _count_false_warms(self, seen: Mapping[str, Observation]) -> None:
        here = {label for label, of in seen.items() if of.fleet and of.fleet.coming_or_here}
        called = {self._labels.get(name, name) for name in self.open_runs.called()}
        called |= {label for label, of in seen.items() if any(lane.outstanding for lane in of.lanes.values())}
        self.false_warms.observe(self._prewarmed, here, called)

    def _place(self, hosts: Sequence[Host], now_s: float) -> Layout:
        """A queue of which nothing is known yet keeps what it has, and a host that has come what it runs."""
        before = Layout({**as_running(hosts).hosts, **self._layout.hosts})
        needs = [self._need(queue, before) for queue in self._queues]
        return place(needs, hosts, before, round(now_s * 1_000))

    def _need(self, queue: Scaled, before: Layout) -> Need:
        decision = self._known[queue.label].decision
        warm, asleep = (decision.replicas, decision.asleep) if decision else before.total(queue.label)
        return Need(queue.label, warm, asleep, queue.resources)


def _classes(queues: Iterable[Scaled]) -> set[str]:
    return {queue.model_class for queue in queues}


def _smoothed(known_s: float | None, seen_s: float | None) -> float | None:
    """The first one is taken as it is; without a new one nothing changes."""
    if known_s is None or seen_s is None:
        return known_s if seen_s is None else seen_s
    return known_s + SMOOTHING * (seen_s - known_s)
