"""Workers for the load that is expected when they would be ready. It raises floors, never lowers anything.

A prediction that was wrong costs money, so it has a cap, and it measures itself: what was expected for each slot is
compared with what came, and one that is off by more than half is not followed until it is right again.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from services.autoscaler.domain.policy import BUSY_SHARE
from services.autoscaler.domain.rules import Floor
from services.autoscaler.domain.season import SLOT_S, Season
from services.autoscaler.domain.steadiness import Steadied, begin, steadied

CAP = 0.8
"""Of the ceiling: a history gone wrong must leave room for the load that is there."""
MARGIN_S = float(SLOT_S)
"""Workers are there so much earlier than the load is expected. A slot's mean does not say when in it the load rises:
where that begins in one, what the next one expects may be there before it."""
HOLD_S = 300.0
"""A floor sinks once in so long at most: what trembles about a whole number would take workers away that it starts
again a moment later."""
DISTRUST_AT = 0.5
"""Error relative to the load."""
KEEP = 0.95
"""Of the weight of earlier slots' errors: the last three hours decide."""
LEVELS, LEVEL_KEEP = (0.5, 1.5), 0.8
"""Bounds of a day's level, and what a slot leaves of the weight of earlier ones: the last hour decides."""


class Accuracy(NamedTuple):
    """The prediction's own error: what it missed by, of what came; both forgotten exponentially."""

    missed: float = 0.0
    came: float = 0.0

    @property
    def error(self) -> float | None:
        """0.1: a tenth off (the weighted absolute percentage error, WAPE); None: nothing came yet."""
        return self.missed / self.came if self.came else None

    def after(self, expected: float, came: float) -> "Accuracy":
        """One slot later."""
        return Accuracy(self.missed * KEEP + abs(expected - came), self.came * KEEP + came)


NOT_MEASURED = Accuracy()


class Level(NamedTuple):
    """How today compares with what is usual at these hours: 1.1 on a day with a tenth more."""

    came: float = 0.0
    usual: float = 0.0

    @property
    def factor(self) -> float:
        """Within bounds: beyond them it is no day like the others."""
        least, most = LEVELS
        return min(most, max(least, self.came / self.usual)) if self.usual else 1.0

    def after(self, usual: float, came: float) -> "Level":
        """One slot later."""
        return Level(self.came * LEVEL_KEEP + came, self.usual * LEVEL_KEEP + usual)


USUAL = Level()


@dataclass(slots=True)
class Prediction:
    """Of one queue. Times are the log's, in seconds."""

    season: Season = field(default_factory=Season)
    accuracy: Accuracy = NOT_MEASURED
    level: Level = USUAL
    _held: Steadied | None = None

    def learn(self, at_s: float, arrivals_per_s: float) -> None:
        """A slot is over: first judged, then learned."""
        usual = self.season.expected(at_s)
        if usual is not None:
            self.accuracy = self.accuracy.after(usual * self.level.factor, arrivals_per_s)
            self.level = self.level.after(usual, arrivals_per_s)
        self.season.learn(at_s, arrivals_per_s)

    @property
    def is_trusted(self) -> bool:
        """Whether it has been right."""
        error = self.accuracy.error
        return error is not None and error <= DISTRUST_AT

    def floor(self, now_s: float, lead_s: float, service_s: float, slots: float, ceiling: int) -> Floor:
        """For all the time until a worker started at the next look would be ready. `ceiling`: of the queue."""
        usual = self.season.most(now_s, now_s + lead_s + MARGIN_S)
        if usual is None or not self.is_trusted:
            self._held = None
            return Floor(0, f"prediction: {self._why_not()}")
        rate = usual * self.level.factor
        is_expected = rate * SLOT_S >= 1 - 1e-9  # what came once, weeks ago, fades but never quite
        wanted = math.ceil(rate * service_s / (slots * BUSY_SHARE) - 1e-9) if is_expected else 0
        self._held = steadied(self._held or begin(wanted, now_s), wanted, now_s, HOLD_S)
        floor = min(self._held.replicas, max(1, math.floor(CAP * ceiling)))
        return Floor(floor, f"prediction: {rate:.2f}/s within {lead_s:g} s, {self.accuracy.error:.0%} off")

    def _why_not(self) -> str:
        error = self.accuracy.error
        return "no history yet" if error is None or error <= DISTRUST_AT else f"{error:.0%} off, not followed"


class SlotMean:
    """Arrivals by slot, from the looks of every second."""

    def __init__(self) -> None:
        self._slot: int | None = None
        self._sum = 0.0
        self._looks = 0

    def observe(self, now_s: float, arrivals_per_s: float | None) -> tuple[float, float] | None:
        """What was seen now; the begin and the mean of a slot that is over with this look."""
        slot, over = math.floor(now_s / SLOT_S), None
        if slot != self._slot:
            if self._slot is not None and self._looks:
                over = (self._slot * SLOT_S, self._sum / self._looks)
            self._slot, self._sum, self._looks = slot, 0.0, 0
        if arrivals_per_s is not None:
            self._sum += arrivals_per_s
            self._looks += 1
        return over
