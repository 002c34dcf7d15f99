"""A load that is shaped like a day: offices that open, lunch, offices that close; no day quite like another."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

DAY_S, HOUR_S = 86_400.0, 3_600.0
HOURS = (
    (0.0, 0.10),
    (7.0, 0.10),
    (8.0, 0.20),
    (9.0, 0.20),
    (9.05, 0.95),
    (11.0, 1.00),
    (12.0, 1.00),
    (12.1, 0.45),
    (13.0, 0.45),
    (13.05, 0.90),
    (16.0, 1.00),
    (17.5, 0.80),
    (18.0, 0.35),
    (21.0, 0.30),
    (24.0, 0.10),
)
"""Hour, and share of the peak: straight lines between. Made up; the rise at nine takes three minutes."""
LEVEL_SPREAD, SHIFT_SPREAD_S = 0.05, 60.0
"""Standard deviations, from day to day, of how much comes and of when."""


class Day(NamedTuple):
    """One day."""

    peak_per_s: float
    shift_s: float
    """So much later than usual."""

    def per_s(self, at_s: float) -> float:
        """At a time since the epoch."""
        return self.peak_per_s * _share(HOURS, ((at_s - self.shift_s) % DAY_S) / HOUR_S)


def some_day(usual_peak_per_s: float, dice: random.Random) -> Day:
    """Any one."""
    return Day(usual_peak_per_s * dice.gauss(1.0, LEVEL_SPREAD), dice.gauss(0.0, SHIFT_SPREAD_S))


def _share(points: Sequence[tuple[float, float]], hour: float) -> float:
    for (before, low), (after, high) in pairwise(points):
        if before <= hour <= after:
            return low + (high - low) * (hour - before) / (after - before)
    raise ValueError(f"hour {hour}")
