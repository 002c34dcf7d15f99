"""The analyzer: from what is seen of a queue to seconds of work: messages of two classes do not compare."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from schemas.base import Priority
from services.autoscaler.domain.observation import FleetSeen, LaneSeen, Observation

WAVE = 2.0
"""Of the rate at which runs start: as fast as a class that was behind hands them on when it catches up."""


class Work(NamedTuple):
    """Of a lane, or of a whole queue."""

    arriving: float
    """λ·S: seconds of work that come each second, which is how many slots they keep busy."""
    outstanding_s: float
    """Seconds of work that are not done yet."""


class Demand(NamedTuple):
    """What a queue asks for, every measure known."""

    lanes: Mapping[Priority, Work]
    service_s: float
    fleet: FleetSeen
    sustained: float
    """Like `arriving`, for all the time that runs start as they do: what comes in waves is evened out."""
    start_s: float = 0.0
    """Until a worker that is started now is ready."""

    @property
    def total(self) -> Work:
        """All lanes together."""
        works = self.lanes.values()
        return Work(sum(work.arriving for work in works), sum(work.outstanding_s for work in works))

    @property
    def waiting_s(self) -> float:
        """Seconds of work that no worker has begun."""
        return max(0.0, self.total.outstanding_s - self.fleet.busy * self.service_s)

    def lag_s(self, slots: float) -> float | None:
        """How long what is outstanding takes the workers there are, starting ones counted; None: there are none."""
        capacity = self.fleet.coming_or_here * slots
        outstanding_s = self.total.outstanding_s
        if not outstanding_s:
            return 0.0
        return outstanding_s / capacity if capacity else None


class Missing(NamedTuple):
    """Measures without which nothing new is decided."""

    measures: tuple[str, ...]
    some_wait: bool
    """Tasks are known to wait, in whatever lane: one worker is right, however little else is known."""
    there: int | None = None
    """Workers that run tasks, or soon will; None: the fleet is not heard."""


Analysis = Demand | Missing


def analyze(seen: Observation) -> Analysis:
    """Either every measure is known, or those that are not are named."""
    service_s = _known(seen.service_s)
    missing = [*_missing_lanes(seen), *([] if seen.fleet else ["the fleet"])]
    if service_s is None and not missing and not _has_work(seen):
        service_s = 0.0  # of no task at all
    if missing or service_s is None or seen.fleet is None:
        missing += ["the service time"] if service_s is None else []
        return Missing(tuple(missing), _some_wait(seen), seen.fleet.coming_or_here if seen.fleet else None)
    lanes = {lane: _work(lane_seen, service_s) for lane, lane_seen in seen.lanes.items()}
    sustained_per_s = _sustained(sum(lane.arrivals_per_s or 0.0 for lane in seen.lanes.values()), seen.coming_per_s)
    return Demand(lanes, service_s, seen.fleet, sustained_per_s * service_s, seen.start_s or 0.0)


def _sustained(arrivals_per_s: float, coming_per_s: float | None) -> float:
    """Tasks a second. What arrives counts, where it is so much more than the graphs tell that no wave explains it."""
    coming_per_s = _known(coming_per_s)
    if coming_per_s is None or arrivals_per_s > coming_per_s * WAVE:
        return arrivals_per_s
    return coming_per_s


def _missing_lanes(seen: Observation) -> list[str]:
    if not seen.lanes:
        return ["the lag"]
    lags = [f"the lag of {lane.value}" for lane, found in seen.lanes.items() if _known(found.outstanding) is None]
    rates = [
        f"the rate of {lane.value}" for lane, found in seen.lanes.items() if _known(found.arrivals_per_s) is None
    ]
    return lags + rates


def _known(measure: float | None) -> float | None:
    """Kafka says -1, and a division NaN, where nothing is known."""
    return measure if measure is not None and math.isfinite(measure) and measure >= 0 else None


def _has_work(seen: Observation) -> bool:
    return any(lane.outstanding or lane.arrivals_per_s for lane in seen.lanes.values())


def _some_wait(seen: Observation) -> bool:
    return any(_known(lane.outstanding) for lane in seen.lanes.values())


def _work(lane: LaneSeen, service_s: float) -> Work:
    assert lane.arrivals_per_s is not None
    assert lane.outstanding is not None
    return Work(lane.arrivals_per_s * service_s, lane.outstanding * service_s)
