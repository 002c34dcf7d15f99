"""Whether a worker more finds room on this machine, beside what runs there."""

from collections.abc import Iterable

from schemas.fleet import Capacity
from schemas.models import Queue
from services.host.domain.wishes import Wish


def full_for(queues: Iterable[Queue], running: Iterable[Wish], capacity: Capacity) -> set[str]:
    """Labels of the queues of which no further worker fits. CPU can be shared for a while, memory cannot."""
    taken = [_takes(wish.queue, capacity, asleep=wish.asleep) for wish in running]
    memory = capacity.memory - sum(each for each, _ in taken)
    gpu_memory = capacity.gpu_memory - sum(each for _, each in taken)

    def is_full(queue: Queue) -> bool:
        needed, needed_gpu = _takes(queue, capacity)
        return needed > memory or needed_gpu > gpu_memory

    return {queue.label for queue in queues if is_full(queue)}


def _takes(queue: Queue, capacity: Capacity, *, asleep: bool = False) -> tuple[int, int]:
    """Memory, and memory of GPUs: without a figure for that, whole GPUs; asleep, none."""
    resources = queue.resources
    whole = resources.gpu * capacity.gpu_memory // capacity.gpus if capacity.gpus else 0
    gpu_memory = whole if resources.gpu_memory is None else resources.gpu_memory
    return resources.memory, 0 if asleep else gpu_memory
