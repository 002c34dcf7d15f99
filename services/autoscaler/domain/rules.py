"""What a configuration says of a queue's size."""

from typing import Literal, NamedTuple

from schemas.base import Priority
from schemas.models import Queue

Tier = Literal["always", "standby", "zero"]


class Floor(NamedTuple):
    """At least so many warm workers, whatever the load."""

    replicas: int
    why: str


class Rules(NamedTuple):
    """Of one queue."""

    slots: int
    """Of a worker."""
    ceiling: int
    target_drain_s: float
    cooldown_s: float
    tier: Tier = "always"
    least: int = 1
    """Workers kept in a tier that keeps any: warm in `always`, at least asleep in `standby`."""

    @classmethod
    def of(cls, queue: Queue, tier: Tier | None = None) -> "Rules":
        """A worker more than the longest lane has partitions would have nothing to read.

        `tier`: another than the configuration's, where a budget chooses.
        """
        scaling = queue.scaling
        return cls(
            slots=queue.slots,
            ceiling=min(scaling.max_replicas, max(len(queue.lanes.of(lane)) for lane in Priority)),
            target_drain_s=scaling.target_drain / 1_000,
            cooldown_s=scaling.cooldown / 1_000,
            tier=tier or scaling.tier,
            least=max(1, scaling.min_replicas),
        )

    def usable(self, told: float | None) -> float:
        """Slots of a worker, given how many its engine can take, if it says so."""
        return min(self.slots, told or self.slots)

    @property
    def warm(self) -> Floor:
        """The tier's warm floor."""
        return Floor(self.least if self.tier == "always" else 0, f"tier {self.tier}")

    @property
    def kept(self) -> int:
        """Workers that are there at least, asleep if not warm."""
        return 0 if self.tier == "zero" else min(self.least, self.ceiling)
