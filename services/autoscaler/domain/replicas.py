"""How many workers a queue has, and is to have, as the fleet tells it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

from schemas.fleet import WorkerStatus
from schemas.models import Queue

STATES = get_args(WorkerStatus.model_fields["state"].annotation)


def own(queue: Queue, workers: Iterable[WorkerStatus]) -> list[WorkerStatus]:
    """Those of the workers that serve the queue."""
    return [w for w in workers if (w.model_class, w.backend) == (queue.model_class, queue.backend)]


def replicas(queue: Queue, workers: Iterable[WorkerStatus]) -> Mapping[str, int]:
    """The queue's workers by state; every state is there."""
    states = Counter(worker.state for worker in own(queue, workers))
    return {state: states[state] for state in STATES}
