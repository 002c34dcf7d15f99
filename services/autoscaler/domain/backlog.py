"""How far behind a group is in a partition, and a lane in all of its own. What is not known is None, never 0."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from schemas.base import Priority
from schemas.models import Queue


class Behind(NamedTuple):
    """What is not committed yet, tasks in flight included."""

    tasks: int | None
    seconds: float | None
    """The age of the oldest."""


UNKNOWN = Behind(None, None)


def next_to_do(begin: int, committed: int | None, end: int) -> int | None:
    """The offset from which a group goes on.

    Without a commit that is the oldest record there is, and no record that has expired. A commit past the end is
    none to count from: the log was cut, or its leader does not know yet how far it is.
    """
    at = begin if committed is None else max(begin, committed)
    return at if at <= end else None


def behind(position: int, end: int, stamped_ms: float | None, now_ms: int | None) -> Behind:
    """`stamped_ms`: when the record at `position` was appended; it is asked for only if there is one."""
    if position == end:
        return Behind(0, 0.0)
    age_ms = None if stamped_ms is None or now_ms is None else max(0.0, now_ms - stamped_ms)
    return Behind(end - position, None if age_ms is None else age_ms / 1_000)


def together(parts: Collection[Behind]) -> Behind:
    """All the tasks, and the age of the oldest; unknown as soon as one part is."""
    tasks = [part.tasks for part in parts if part.tasks is not None]
    seconds = [part.seconds for part in parts if part.seconds is not None]
    return Behind(
        sum(tasks) if len(tasks) == len(parts) else None,
        max(seconds, default=0.0) if len(seconds) == len(parts) else None,
    )


def by_lane(queue: Queue, partitions: Mapping[int, Behind]) -> dict[Priority, Behind]:
    """Each lane of a queue; a partition that is not among `partitions` could not be read."""
    return {lane: together([partitions.get(number, UNKNOWN) for number in queue.lanes.of(lane)]) for lane in Priority}
