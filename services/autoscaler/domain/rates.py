"""How many tasks arrive a second: steadily over a minute, at once when the last seconds are another load.

A minute's mean lags a burst by a minute, five seconds' mean jumps with every chance. So the minute counts, until the
last seconds differ from it by more than chance does: arrivals that come independently (Poisson) vary by the root of
their number, and by more than four roots upwards once in 24,000 looks where 2,000 are expected, in 4,600 where twenty
are, in 900 where two are. What would be rarer for these would see less of a load that flaps.

Where a queue's cooldown is shorter than a minute, so is the long mean: else whatever arrived would keep a worker for
a minute more than the cooldown says.
"""

import math
from collections.abc import Collection

from services.autoscaler.domain.arrivals import Arrivals

SHORT_MS, LONG_MS = 5_000, 60_000
BY_CHANCE = 4.0
"""Roots of the expected number."""


def long_ms(cooldown_ms: int) -> int:
    """The long mean's window."""
    return min(LONG_MS, max(SHORT_MS, cooldown_ms))


def arrivals_per_s(partitions: Collection[Arrivals], window_ms: int = LONG_MS) -> float | None:
    """Of a lane, from all of its partitions; None as soon as one of them has not been looked at for long enough."""
    short, long = _together(partitions, SHORT_MS), _together(partitions, window_ms)
    return None if short is None or long is None else believable(short, long)


def believable(short_per_s: float, long_per_s: float) -> float:
    """The long mean, or the short one where chance does not explain it."""
    seconds = SHORT_MS / 1_000
    expected = long_per_s * seconds
    surprise = abs(short_per_s * seconds - expected)
    return short_per_s if surprise > BY_CHANCE * math.sqrt(max(expected, 1.0)) else long_per_s


def _together(partitions: Collection[Arrivals], window_ms: int) -> float | None:
    rates = [rate for partition in partitions if (rate := partition.per_s(window_ms)) is not None]
    return sum(rates) if len(rates) == len(partitions) else None
