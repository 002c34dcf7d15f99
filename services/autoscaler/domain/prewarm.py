"""Which classes to start because open runs will call them, before their first task is there.

All at once, not one after the other: a run then waits for the slowest load, not for the sum of all. A class that only
some branch calls is started when it is likely enough that one of the open runs takes that branch: started at 0.7, at
most 30 % of the starts are in vain, as far as the shares are right. One that has been started is kept until nearly
all of these runs are known to have taken another branch: stopped earlier, it would have been started in vain.
"""

from collections.abc import Collection, Mapping

from services.autoscaler.domain.open_runs import Need
from services.autoscaler.domain.rules import Floor

START_AT = 0.7
KEEP_AT = 0.1


def prewarmed(needs: Mapping[str, Need], before: Collection[str]) -> dict[str, Floor]:
    """By queue label: a warm worker for each that is likely called. `before`: those of the last look."""
    return {
        label: Floor(1, f"pre-warm: {need.calls:.1f} calls expected of open runs, {need.probability:.0%} likely")
        for label, need in needs.items()
        if need.probability >= (KEEP_AT if label in before else START_AT)
    }
