"""What is seen of one queue at one moment. What is not known is None, which is never 0."""

from collections.abc import Mapping
from typing import NamedTuple

from schemas.base import Priority


class LaneSeen(NamedTuple):
    """One lane."""

    arrivals_per_s: float | None
    outstanding: int | None
    """Tasks appended and not committed yet, those in flight included."""


class FleetSeen(NamedTuple):
    """The queue's workers by state, and how many of their slots are busy."""

    warm: int = 0
    starting: int = 0
    asleep: int = 0
    draining: int = 0
    busy: int = 0
    is_stable: bool = True
    """The group's members have their partitions: nobody is joining or leaving."""
    slots: float | None = None
    """That a warm worker can use, on the mean; None where none says so, or a worker more would not make more."""

    @property
    def coming_or_here(self) -> int:
        """Workers that run tasks, or soon will."""
        return self.warm + self.starting


class Observation(NamedTuple):
    """One queue."""

    lanes: Mapping[Priority, LaneSeen]
    service_s: float | None = None
    """The mean time of a task on the engine: as the workers tell it, or last did."""
    fleet: FleetSeen | None = None
    start_s: float | None = None
    """How long a worker takes from its start until it is ready, as one last did."""
    coming_per_s: float | None = None
    """How many tasks a second the runs that start will bring, sooner or later; None where the graphs do not tell."""

    @property
    def arrivals_per_s(self) -> float | None:
        """Of all lanes; None unless each of them is known."""
        rates = [lane.arrivals_per_s for lane in self.lanes.values() if lane.arrivals_per_s is not None]
        return sum(rates) if rates and len(rates) == len(self.lanes) else None


UNSEEN = Observation({})
