"""How many tasks arrive a second: steadily over a minute, at once when the last seconds are another load.

A minute's mean lags a burst by a minute, five seconds' mean jumps with every chance. So the minute counts, until the
last seconds differ from it by more than chance does: of arrivals that come independently (Poisson), whatever their
number, so many come once in 30,000 looks at most, and so few once in 20,000.

Where a queue's cooldown is shorter than a minute, so is the long mean: else whatever arrived would keep a worker for
a minute more than the cooldown says.
"""

import math
from collections.abc import Collection

from services.autoscaler.domain.arrivals import Arrivals

SHORT_MS, LONG_MS = 5_000, 60_000
BY_CHANCE = 4.0
"""Standard deviations."""


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
    came, expected = short_per_s * seconds, max(1.0, long_per_s * seconds)
    return short_per_s if surprise(came, expected) > BY_CHANCE else long_per_s


def surprise(came: float, expected: float) -> float:
    """How unlikely a Poisson number is, as standard deviations of a normal one.

    It is the root of the deviance (twice the logarithm of how much likelier the number makes itself than what was
    expected), half a task nearer since numbers are whole. Roots of the expected number would do for large ones: of
    two expected, so many as four roots more come once in 900 times.
    """
    off = abs(came - expected) - 0.5
    if off <= 0:
        return 0.0
    number = expected + math.copysign(off, came - expected)
    return math.sqrt(2 * (number * math.log(number / expected) - number + expected))


def _together(partitions: Collection[Arrivals], window_ms: int) -> float | None:
    rates = [rate for partition in partitions if (rate := partition.per_s(window_ms)) is not None]
    return sum(rates) if len(rates) == len(partitions) else None
