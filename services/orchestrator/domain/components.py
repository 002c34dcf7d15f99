"""Which task partitions may be given work, by what the workers' circuit breakers say. Pure.

A component is a model class on one backend. It is as well as most of its workers are: one bad worker is passed by,
and the class stays. A worker that is half-open gets as many tasks as it said it would try.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.base import LogTime
from schemas.fleet import BreakerState, CircuitState, WorkerStatus

REMEMBERED_MS = 60_000
"""An open breaker outlives its workers by so long: they are being started anew, and what ails them may last."""


Stamped = tuple[LogTime, BreakerState]


class Component(NamedTuple):
    """What is called."""

    model_class: str
    backend: str


@dataclass(slots=True)
class Ailing:
    """A worker whose breaker is not closed."""

    said_at: LogTime
    partitions: frozenset[int]
    probes: int
    """How many more tasks it would try, of those it announced then."""


@dataclass(slots=True)
class Trouble:
    """A component with an ailing worker, or one that was down when its last worker was heard of."""

    heard_at: LogTime
    ailing: dict[str, Ailing] = field(default_factory=dict)
    well: int = 0

    @property
    def is_down(self) -> bool:
        """Most workers ail."""
        return len(self.ailing) > self.well

    def partitions(self, lane: Sequence[int]) -> Sequence[int]:
        """Of a lane, those that may be given one task now."""
        for worker in self.ailing.values():
            probed = [partition for partition in lane if partition in worker.partitions]
            if worker.probes and probed:
                worker.probes -= 1
                return probed
        if self.is_down:
            return ()
        ailing = frozenset().union(*(worker.partitions for worker in self.ailing.values()))
        return [partition for partition in lane if partition not in ailing] or lane


class Components:
    """Most of the time all components are well, and cost nothing."""

    def __init__(self) -> None:
        self._troubled: dict[Component, Trouble] = {}

    def heard(self, breakers: Iterable[Stamped], workers: Iterable[WorkerStatus], now: LogTime) -> None:
        """The live statuses as they are now, the same ones again and again until they are replaced."""
        owned = {(status.instance, _of(status)): frozenset(status.committed) for status in workers}
        by_component: defaultdict[Component, list[Stamped]] = defaultdict(list)
        for at, said in breakers:
            by_component[_of(said)].append((at, said))
        troubled = {of: self._remembered(of, now) for of in self._troubled.keys() - by_component.keys()}
        for of, spoken in by_component.items():
            troubled[of] = self._trouble(of, spoken, owned)
        self._troubled = {of: trouble for of, trouble in troubled.items() if trouble is not None}

    def partitions(self, model_class: str, backend: str, lane: Sequence[int]) -> Sequence[int]:
        """Of a lane, those that may be given one task now; none while the component is down."""
        trouble = self._troubled.get(Component(model_class, backend)) if self._troubled else None
        return lane if trouble is None else trouble.partitions(lane)

    def _remembered(self, of: Component, now: LogTime) -> Trouble | None:
        """What is left of a component of which nothing is heard any more."""
        trouble = self._troubled[of]
        if not trouble.is_down or now - trouble.heard_at > REMEMBERED_MS:
            return None
        for worker in trouble.ailing.values():
            worker.probes = 0
        return trouble

    def _trouble(
        self, of: Component, spoken: Sequence[Stamped], owned: Mapping[tuple[str, Component], frozenset[int]]
    ) -> Trouble | None:
        trouble = Trouble(max(at for at, _ in spoken))
        before = self._troubled.get(of, trouble).ailing
        for at, said in spoken:
            if said.state is CircuitState.CLOSED:
                trouble.well += 1
                continue
            known = before.get(said.instance)
            probes = known.probes if known is not None and known.said_at == at else said.probes
            partitions = owned.get((said.instance, of), frozenset())
            trouble.ailing[said.instance] = Ailing(at, partitions, probes)
        return trouble if trouble.ailing else None


def _of(status: BreakerState | WorkerStatus) -> Component:
    return Component(status.model_class, status.backend)
