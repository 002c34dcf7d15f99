"""Which lane a free slot serves: weighted deficit round robin with aging, kept by debt.

A lane's debt is the work it was given divided by its weight; the lane least in debt goes next, the higher one first
when they are equal. So lanes with work share the slots by weight at any moment, not only over a round; a lane alone
has them all; and one that stood empty comes back level with the others, neither owed nor owing for that time. This is
start-time fair queueing (Goyal, Vin, Cheng 1996) over tasks of unknown length.

Whether a lane has work is known only by polling it: a turn that took less than it might have shows the lane dry until
the next round.
"""

from collections.abc import Mapping
from typing import NamedTuple

from schemas.base import LANE_WEIGHTS, Priority

LANES = tuple(Priority)
AGING_S = 30.0
"""A lane that waited so long goes first, though never twice in a row: a share may take minutes when tasks do."""


class Turn(NamedTuple):
    """This lane may take up to `limit` records now; then ask again."""

    lane: Priority
    limit: int


class LaneScheduler:
    """Hands out turns, round by round. Times are seconds of one monotonic clock."""

    def __init__(self, now_s: float) -> None:
        self._debt = dict.fromkeys(LANES, 0.0)
        self._waits_since = dict.fromkeys(LANES, now_s)
        self._dry: set[Priority] = set()
        self._aged_last = False

    def begin(self) -> None:
        """A new round: every lane may have work again; those that stood empty are level with those that did not."""
        busy = [self._debt[lane] for lane in LANES if lane not in self._dry]
        level = min(busy, default=0.0)
        for lane in self._dry:
            self._debt[lane] = max(self._debt[lane], level) if busy else 0.0
        self._dry.clear()

    def turn(self, free: Mapping[Priority, int], now_s: float) -> Turn | None:
        """The next lane to poll, given the slots each may take; None when the round is over."""
        candidates = [lane for lane in LANES if free[lane] > 0 and lane not in self._dry]
        if not candidates:
            return None
        lane = self._overdue(candidates, now_s)
        self._aged_last = lane is not None
        if lane is None:
            lane = min(candidates, key=self._debt.__getitem__)
        rivals = [self._debt[other] for other in candidates if other is not lane]
        return Turn(lane, min(free[lane], self._lead(lane, min(rivals))) if rivals else free[lane])

    def took(self, turn: Turn, count: int, now_s: float) -> None:
        """What came of a turn: `count` records, at most its limit."""
        lane = turn.lane
        self._debt[lane] += count / LANE_WEIGHTS[lane]
        self._waits_since[lane] = now_s  # either it was served, or nobody waits in it
        if count < turn.limit:
            self._dry.add(lane)

    def _overdue(self, candidates: list[Priority], now_s: float) -> Priority | None:
        if self._aged_last:
            return None
        oldest = min(candidates, key=self._waits_since.__getitem__)
        return oldest if now_s - self._waits_since[oldest] >= AGING_S else None

    def _lead(self, lane: Priority, rival_debt: float) -> int:
        """Records until the lane is deeper in debt than its nearest rival."""
        return max(1, int((rival_debt - self._debt[lane]) * LANE_WEIGHTS[lane]) + 1)
