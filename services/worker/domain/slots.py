"""How many tasks run at once, and which lane may use which slot."""

from schemas.base import Priority, reserved_slots
from services.worker.domain.lanes import LANES


class Slots:
    """The slots of one engine. A quarter is reserved for the top lane, unless this worker has no partition of it.

    `total` may change at any time. What is in flight stays; none is free until enough of it has ended.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.lent = False
        """Whether the lower lanes may use the reserved slots: nothing of the top lane can come here."""
        self.busy = 0
        """Slots at work."""
        self._busy = dict.fromkeys(LANES, 0)

    @property
    def reserved(self) -> int:
        """Slots that only the top lane may use now."""
        return 0 if self.lent else reserved_slots(self.total)

    def free(self, lane: Priority) -> int:
        """Slots a lane may take now."""
        free = max(0, self.total - self.busy)
        if lane is LANES[0]:
            return free
        lower = self.busy - self._busy[LANES[0]]
        return max(0, min(free, self.total - self.reserved - lower))

    @property
    def wanting(self) -> bool:
        """Whether a lane that has tasks at work may have no more."""
        return any(count and not self.free(lane) for lane, count in self._busy.items())

    def take(self, lane: Priority) -> None:
        """Occupies one; the caller has seen that one is free."""
        assert self.free(lane) > 0, f"no slot is free for {lane}"
        self.busy += 1
        self._busy[lane] += 1

    def release(self, lane: Priority) -> None:
        """Gives one back."""
        assert self._busy[lane] > 0, f"no slot of {lane} is taken"
        self.busy -= 1
        self._busy[lane] -= 1
