"""Which partition of its lane a task goes to: its session's while that is not crowded, else the shortest queue."""

from collections.abc import Callable, Sequence
from hashlib import blake2b

CROWDED = 2.0
"""A session leaves its partition when that one's queue exceeds this multiple of its lane's mean."""


def place(lane: Sequence[int], session: str | None, outstanding: Callable[[int], int | None], turn: int) -> int:
    """The partition for one task.

    `outstanding` gives the tasks queued or running in a partition, None when no worker reported it: then tasks go
    round robin by `turn`, since a guess would herd them onto one partition.
    """
    queues = [outstanding(partition) for partition in lane]
    known = [queue for queue in queues if queue is not None]
    if len(known) < len(lane):
        return rendezvous(session, lane) if session is not None else lane[turn % len(lane)]
    if session is not None:
        home = rendezvous(session, lane)
        mean = sum(known) / len(known)
        if known[lane.index(home)] <= max(CROWDED * mean, 1):
            return home
    shortest = min(known)
    candidates = [partition for partition, queue in zip(lane, known, strict=True) if queue == shortest]
    return candidates[turn % len(candidates)]


def rendezvous(session: str, lane: Sequence[int]) -> int:
    """Highest random weight: adding a partition moves only the sessions that it wins."""
    return max(lane, key=lambda partition: blake2b(f"{partition}/{session}".encode(), digest_size=8).digest())
