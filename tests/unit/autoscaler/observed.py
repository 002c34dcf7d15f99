"""What tests of scaling see."""

from schemas.base import Priority
from services.autoscaler.domain.observation import FleetSeen, LaneSeen, Observation

NOBODY = FleetSeen()


def seen(
    arrivals_per_s: float | None = 0.0,
    outstanding: int | None = 0,
    service_s: float | None = 1.0,
    fleet: FleetSeen | None = NOBODY,
) -> Observation:
    """A queue that is used in its standard lane."""
    quiet = LaneSeen(0.0, 0)
    lanes = {Priority.INTERACTIVE: quiet, Priority.STANDARD: LaneSeen(arrivals_per_s, outstanding)}
    return Observation({**lanes, Priority.BATCH: quiet}, service_s, fleet)
