"""Where a task goes: to which backend of its class, and to which partition of that one's queue. Pure.

Most classes have one backend, and cost no thought. Where there are several, each offers to do the task by some time
for some money; what their circuit breakers let pass is taken in the order of their offers.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from schemas.base import LogTime, Output, Priority
from schemas.fleet import ScalingDecision, WorkerStatus
from schemas.joins import StepReady
from schemas.models import Queue
from services.orchestrator.domain.backends import Offer, ranked
from services.orchestrator.domain.components import Component, Components, Stamped
from services.orchestrator.domain.loads import Load, Prospect
from services.orchestrator.domain.outstanding import Outstanding
from services.orchestrator.domain.placement import place
from services.orchestrator.domain.prices import expected_usd
from services.orchestrator.domain.steps import route

Queues = Mapping[tuple[str, str], Queue]
NO_DECISIONS: Mapping[str, ScalingDecision] = MappingProxyType({})


class Route(NamedTuple):
    """A queue, and a partition of its topic."""

    queue: Queue
    partition: int
    spilled: bool
    """A cheaper backend would have been late, is not heard of, or has an open breaker."""


class Routing:
    """What dispatch knows of the fleet, and of what it has sent there."""

    def __init__(self) -> None:
        self._outstanding: defaultdict[str, Outstanding] = defaultdict(Outstanding)
        self._components = Components()
        self._loads: defaultdict[Component, Load] = defaultdict(Load)
        self._turn = 0

    def outstanding(self, topic: str) -> Outstanding:
        """The tasks that a task topic holds."""
        return self._outstanding[topic]

    def heard(
        self,
        workers: Sequence[tuple[LogTime, WorkerStatus]],
        queues: Queues,
        now: LogTime,
        decisions: Mapping[str, ScalingDecision] = NO_DECISIONS,
    ) -> None:
        """The live workers: how far each task partition is done, and how long a task would wait.

        `decisions`: of the autoscaler that leads, by queue label; where there is one it starts what a task waits for.
        """
        of_component: defaultdict[Component, list[tuple[LogTime, WorkerStatus]]] = defaultdict(list)
        for at, worker in workers:
            of_component[Component(worker.model_class, worker.backend)].append((at, worker))
        for component in of_component.keys() & queues.keys():
            told = (worker.committed for _, worker in of_component[component])
            committed = {partition: offset for owned in told for partition, offset in owned.items()}
            self.outstanding(queues[component].topic).reported(committed)
        for component in several_backends(queues):
            queue = queues[component]
            prospect = _prospect(queue, decisions.get(queue.label))
            self._loads[component].look(of_component[component], self._by_lane(queue), now, prospect)

    def heard_breakers(self, breakers: Iterable[Stamped], workers: Iterable[WorkerStatus], now: LogTime) -> None:
        """Which components are ill."""
        self._components.heard(breakers, workers, now)

    def route(
        self, ready: StepReady, among: Sequence[Queue], value: Output, now: Callable[[], LogTime]
    ) -> Route | None:
        """`among` are those that the step may go to; None while the breakers of all are open."""
        if len(among) > 1:
            return self._choose(ready, among, value, now())
        found = route(among, ready.priority, self._components)
        return Route(found[0], self._place(ready, found[0], found[1]), False) if found else None

    def _choose(self, ready: StepReady, among: Sequence[Queue], value: Output, now: LogTime) -> Route | None:
        queues = {queue.backend: queue for queue in among}
        offers = [self._offer(queue, ready.priority, value) for queue in among]
        ranking = ranked(offers, (ready.step_deadline_at - now) / 1_000)
        found = route((queues[choice.backend] for choice in ranking), ready.priority, self._components)
        if found is None:
            return None
        queue, partitions = found
        self._load(queue).given(ready.priority)
        cheapest = min(offers, key=lambda offer: offer.usd)
        return Route(queue, self._place(ready, queue, partitions), spilled=queue.backend != cheapest.backend)

    def _offer(self, queue: Queue, lane: Priority, value: Output) -> Offer:
        load, usd = self._load(queue), expected_usd(queue.price, value)
        return Offer(queue.backend, load.wait_s(lane), load.service_s, usd, queue.spill_at, load.is_staffed)

    def _load(self, queue: Queue) -> Load:
        return self._loads[Component(queue.model_class, queue.backend)]

    def _place(self, ready: StepReady, queue: Queue, partitions: Sequence[int]) -> int:
        partition = place(partitions, ready.session, self.outstanding(queue.topic).of, self._turn)
        self._turn += 1
        return partition

    def _by_lane(self, queue: Queue) -> dict[Priority, float]:
        """Tasks that are queued or run, as far as is known."""
        held = self.outstanding(queue.topic)
        return {lane: sum(map(held.known_of, queue.lanes.of(lane))) for lane in Priority}


def several_backends(queues: Queues) -> list[Component]:
    """The backends of classes that have several."""
    backends = Counter(model_class for model_class, _ in queues)
    return [Component(*of) for of in queues if backends[of[0]] > 1]


def _prospect(queue: Queue, decision: ScalingDecision | None) -> Prospect | None:
    """None where nobody decides, or no host has room."""
    return None if decision is None or decision.unplaced else Prospect(decision.start_s, queue.slots)
