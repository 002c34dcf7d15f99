"""Lag by model class and lane: pure. What cannot be read is None, never 0."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from schemas.base import Priority
from schemas.fleet import WorkerStatus
from schemas.models import Queue


@dataclass(frozen=True, slots=True)
class LaneLag:
    """One lane of one queue. Replicas, slots and their seconds are those of the whole class: lanes share them."""

    model_class: str
    lane: str
    tasks_behind: int | None
    seconds_behind: float | None
    replicas: int | None
    busy_slots: int | None
    slots: int | None


def lane_lags(queue: Queue, behind: Mapping[int, int | None], workers: Collection[WorkerStatus]) -> Iterator[LaneLag]:
    """`behind` is (end − committed) by partition; `workers`: the queue's live statuses.

    seconds behind = tasks × mean engine seconds of a task / slots of the warm workers; without a status, unknown.
    """
    warm = [worker for worker in workers if worker.state == "warm"]
    slots = sum(worker.slots for worker in warm)
    for lane in Priority:
        tasks = _sum([behind.get(partition) for partition in queue.lanes.of(lane)])
        yield LaneLag(
            model_class=queue.label,
            lane=lane.value,
            tasks_behind=tasks,
            seconds_behind=_seconds(tasks, _service_ms(warm), slots),
            replicas=len(warm) if workers else None,
            busy_slots=sum(worker.busy for worker in warm) if workers else None,
            slots=slots if workers else None,
        )


def _sum(parts: Collection[int | None]) -> int | None:
    """None as soon as one part is unknown."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _service_ms(warm: Collection[WorkerStatus]) -> float | None:
    """The mean engine time of a task, weighted by slots; None before any worker has measured one."""
    measured = [
        (worker.service_ms, worker.slots) for worker in warm if worker.service_ms is not None and worker.slots
    ]
    weight = sum(slots for _, slots in measured)
    return sum(service_ms * slots for service_ms, slots in measured) / weight if weight else None


def _seconds(tasks: int | None, service_ms: float | None, slots: int) -> float | None:
    if tasks == 0 and slots:
        return 0.0
    if tasks is None or service_ms is None or not slots:
        return None
    return tasks * service_ms / 1_000 / slots
