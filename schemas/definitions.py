"""What a worker is told of its queue when it starts, in a word: by it others see whether a worker is outdated."""

import hashlib

from schemas.models import Queue


def definition_of(queue: Queue) -> str:
    """Changes when workers of the queue must be replaced; what is left out is for others to know, or in the tasks.

    A field that a later version of this code adds changes nothing while it is at its default.
    """
    told = queue.model_dump_json(exclude={"price", "spill_at", "scaling", "resources"}, exclude_defaults=True)
    return hashlib.sha256(told.encode()).hexdigest()[:12]
