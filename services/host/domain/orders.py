"""Which placement a host obeys: that of the newest leader, while it is fresh. No valid one means no change.

A leader's epoch is the offset of the record with which it began, so a later leader's is higher. One that was paused
and goes on, not knowing that it leads no more, is not obeyed. But where the fleet topic was made anew, so were its
offsets: a leader that has been silent for two minutes leads no more.
"""

from collections.abc import Mapping
from typing import NamedTuple

from schemas.fleet import Kept

STALE_AFTER_MS = 30_000
SILENT_AFTER_MS = 120_000


class Order(NamedTuple):
    """A placement for this host."""

    epoch: int
    stamped_ms: int
    """Log time of its record."""
    queues: Mapping[str, Kept]
    """By queue label."""


def obeyed(current: Order | None, arrived: Order, now_ms: int) -> Order | None:
    """The order in force after another one has arrived."""
    if now_ms - arrived.stamped_ms > STALE_AFTER_MS:
        return current
    if current is None or now_ms - current.stamped_ms > SILENT_AFTER_MS:
        return arrived
    return max(arrived, current, key=lambda order: (order.epoch, order.stamped_ms))  # of equals the later in the log
