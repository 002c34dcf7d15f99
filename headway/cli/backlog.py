"""What `headway lag` shows of a lane: pure. What cannot be read is None, never 0."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from schemas.base import Priority
from schemas.fleet import WorkerStatus
from schemas.models import Queue
from services.autoscaler.domain.backlog import Behind


@dataclass(frozen=True, slots=True)
class LaneLag:
    """One lane of one queue. Replicas, slots and what they need to drain are the whole class's: lanes share them."""

    model_class: str
    lane: str
    tasks_behind: int | None
    seconds_behind: float | None
    """The age of the oldest task that is not committed."""
    drain_seconds: float | None
    """What the tasks take: their number × mean engine seconds of a task / slots of the warm workers."""
    replicas: int | None
    busy_slots: int | None
    slots: int | None


def lane_lags(queue: Queue, lanes: Mapping[Priority, Behind], workers: Collection[WorkerStatus]) -> Iterator[LaneLag]:
    """`workers`: the queue's live statuses; without one, nothing is known of its slots."""
    warm = [worker for worker in workers if worker.state == "warm"]
    slots = sum(worker.slots for worker in warm)
    for lane, behind in lanes.items():
        yield LaneLag(
            model_class=queue.label,
            lane=lane.value,
            tasks_behind=behind.tasks,
            seconds_behind=behind.seconds,
            drain_seconds=_seconds(behind.tasks, _service_ms(warm), slots),
            replicas=len(warm) if workers else None,
            busy_slots=sum(worker.busy for worker in warm) if workers else None,
            slots=slots if workers else None,
        )


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
