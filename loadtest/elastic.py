"""How workers followed a burst: how soon as many were there as the rate asks for, how many, and how soon they went.

Replicas are whole, rates are not: where 4.9 are asked for, 5 are right, and so is whatever whole number is within a
tenth of 4.9, or next to that.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from loadtest.fleet import Level, Span, highest, level, warm_at
from loadtest.steps import Step, mean_service_s, tasks_behind
from services.autoscaler.domain.policy import BUSY_SHARE

NEAR = 0.1
"""What is promised: peaks are within a tenth of the rate."""


class Course(NamedTuple):
    """Of a load, in log time."""

    begun_ms: int
    burst_ms: int
    """From here on `times` as much."""
    struck_ms: int
    """From here on processes were killed: what is decided then is not for the rate alone."""
    over_ms: int
    """The usual rate again."""
    ended_ms: int
    base_per_s: float
    """Runs."""
    times: float


class Kind(NamedTuple):
    """A model class."""

    share: float
    """Of the runs that call it."""
    slots: int
    """Of a worker."""
    service_s: float

    def workers(self, runs_per_s: float) -> float:
        """That so many runs a second ask for, by the policy's headroom; not rounded."""
        return runs_per_s * self.share * self.service_s / (self.slots * BUSY_SHARE)


class Followed(NamedTuple):
    """What became of one class."""

    needed: float
    """Workers in the burst, not rounded."""
    base: int
    peak: int
    """The most decided on in the burst, before anything was killed."""
    peak_ratio: float
    """To the workers that a class which every run calls needs at the usual rate."""
    scale_out_s: float | None
    """From the burst's begin until as many were warm as are near enough; None: never."""
    back_s: float | None
    """From its end until no more were decided on than before it; None: never."""
    over_provision: float
    """Worker time decided on, over what the rate asks for, less one."""
    lag_peak_s: float
    lag_over_s: float
    """At the end of the burst."""

    @property
    def follows(self) -> bool:
        """Whether the peak is near enough to the rate."""
        low, high = near(self.needed)
        return low <= self.peak <= high

    def as_json(self) -> dict[str, Any]:
        """Seconds and ratios to two digits."""
        return {
            name: round(value, 2) if isinstance(value, float) else value for name, value in self._asdict().items()
        }


def near(needed: float) -> tuple[int, int]:
    """The least and the most workers that are near enough to so many."""
    return math.floor(needed * (1 - NEAR)), math.ceil(needed * (1 + NEAR))


def followed(
    course: Course, kind: Kind, levels: Sequence[Level], spans: Sequence[Span], steps: Sequence[Step]
) -> Followed:
    """One class, from what was decided, which workers were warm, and its steps."""
    needed = kind.workers(course.base_per_s * course.times)
    every = kind._replace(share=1.0).workers(course.base_per_s)
    base = highest(levels, course.begun_ms, course.burst_ms)
    peak = highest(levels, course.burst_ms, course.struck_ms)
    lags = lag_s(steps, spans, kind.slots)
    return Followed(
        needed=needed,
        base=base,
        peak=peak,
        peak_ratio=peak / every,
        scale_out_s=_seconds(course.burst_ms, warm_ms(spans, near(needed)[0], course.burst_ms)),
        back_s=_seconds(course.over_ms, _lowered_ms(levels, base, course.over_ms)),
        over_provision=over_provision(course, kind, levels),
        lag_peak_s=max((lag for _, lag in lags), default=0.0),
        lag_over_s=next((lag for at_ms, lag in reversed(lags) if at_ms <= course.over_ms), 0.0),
    )


def lag_s(steps: Sequence[Step], spans: Sequence[Span], slots: int) -> list[tuple[int, float]]:
    """(log time, seconds of work for the warm workers there were from then on); of none as for one."""
    service_s = mean_service_s(steps)
    return [
        (at_ms, behind * service_s / (slots * max(1, warm_at(spans, at_ms)))) for at_ms, behind in tasks_behind(steps)
    ]


def warm_ms(spans: Sequence[Span], workers: int, from_ms: int) -> int | None:
    """The first moment from then on when so many were warm."""
    moments = [from_ms, *sorted(span.from_ms for span in spans if span.from_ms > from_ms)]
    return next((at_ms for at_ms in moments if warm_at(spans, at_ms) >= workers), None)


def over_provision(course: Course, kind: Kind, levels: Sequence[Level]) -> float:
    """Of the whole course."""
    cuts = (course.begun_ms, *(each.at_ms for each in levels), course.ended_ms)
    moments = sorted(at_ms for at_ms in cuts if course.begun_ms <= at_ms <= course.ended_ms)
    decided_ms = sum(level(levels, at_ms) * (until_ms - at_ms) for at_ms, until_ms in pairwise(moments))
    burst_ms = course.over_ms - course.burst_ms
    usual_ms = course.ended_ms - course.begun_ms - burst_ms
    return decided_ms / kind.workers(course.base_per_s * (course.times * burst_ms + usual_ms)) - 1


def _lowered_ms(levels: Sequence[Level], base: int, from_ms: int) -> int | None:
    """The first moment from then on when no more were decided on."""
    moments = [from_ms, *(each.at_ms for each in levels if each.at_ms > from_ms)]
    return next((at_ms for at_ms in moments if level(levels, at_ms) <= base), None)


def _seconds(from_ms: int, to_ms: int | None) -> float | None:
    return None if to_ms is None else (to_ms - from_ms) / 1_000
