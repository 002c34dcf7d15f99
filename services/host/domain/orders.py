"""Which placement a host obeys: that of the newest leader, while it is fresh. No valid one means no change.

A leader's epoch is the offset of the record with which it began, so a later leader's is higher. One that was paused
and goes on, not knowing that it leads no more, is not obeyed.
"""

from collections.abc import Mapping
from typing import NamedTuple

STALE_AFTER_MS = 30_000
ALONE_AFTER_S = 10.0
"""After its boot a host without an order keeps what the configuration says."""


class Kept(NamedTuple):
    """Workers of one queue."""

    warm: int = 0
    asleep: int = 0


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
    if current is not None and (arrived.epoch, arrived.stamped_ms) < (current.epoch, current.stamped_ms):
        return current
    return arrived


def is_alone(current: Order | None, since_boot_s: float) -> bool:
    """Whether the configuration decides, since nobody else does."""
    return current is None and since_boot_s >= ALONE_AFTER_S
