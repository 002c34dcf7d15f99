"""How much load comes at each time of the week: the seasonal profile, learned with exponential forgetting.

A week is cut into slots of ten minutes. A slot's mean is moved a share of the way to what it saw this week; one that
has not been seen twice also asks the same time of the other days, since a new system has days before it has weeks.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from pydantic import Field

SLOT_S = 600
DAY_SLOTS = 86_400 // SLOT_S
WEEK_SLOTS = 7 * DAY_SLOTS
LEARN = 0.3
"""Of the way: three weeks make two thirds of what a slot knows."""
TRUSTED = 2
"""Weeks after which a slot speaks for itself."""


Figure = Annotated[float, Field(ge=0, le=1e12)]
"""Of what is read from a file: no more than can be reckoned with."""


class Learned(NamedTuple):
    """What a slot knows."""

    number: Annotated[int, Field(ge=0)]
    mean: Figure
    seen: Annotated[int, Field(ge=1)]


@dataclass(slots=True)
class _Slot:
    mean: float = 0.0
    seen: int = 0

    def learn(self, value: float) -> None:
        """The first value is the mean; later ones move it."""
        self.seen += 1
        self.mean += max(LEARN, 1 / self.seen) * (value - self.mean)


@dataclass(slots=True)
class Season:
    """Arrivals a second, of one queue. Times are the log's, in seconds since the epoch."""

    _week: list[_Slot] = field(default_factory=lambda: [_Slot() for _ in range(WEEK_SLOTS)])
    _day: list[_Slot] = field(default_factory=lambda: [_Slot() for _ in range(DAY_SLOTS)])
    """The same time of any day."""

    @classmethod
    def of(cls, week: Iterable[Learned], day: Iterable[Learned]) -> "Season":
        """As it was when it was asked what it knows."""
        season = cls()
        for slots, learned in ((season._week, week), (season._day, day)):
            for number, mean, seen in learned:
                slots[number % len(slots)] = _Slot(mean, seen)
        return season

    @property
    def week(self) -> list[Learned]:
        """The slots of the week that have seen anything."""
        return _learned(self._week)

    @property
    def day(self) -> list[Learned]:
        """The slots of any day that have."""
        return _learned(self._day)

    def learn(self, at_s: float, arrivals_per_s: float) -> None:
        """The mean of the slot that a time is in, once it is over."""
        number = _number(at_s)
        self._week[number % WEEK_SLOTS].learn(arrivals_per_s)
        self._day[number % DAY_SLOTS].learn(arrivals_per_s)

    def expected(self, at_s: float) -> float | None:
        """Arrivals a second at a time; None where no day was seen yet."""
        number = _number(at_s)
        of_week, of_day = self._week[number % WEEK_SLOTS], self._day[number % DAY_SLOTS]
        if of_week.seen >= TRUSTED:
            return of_week.mean
        return of_day.mean if of_day.seen else None

    def most(self, begin_s: float, end_s: float) -> float | None:
        """The most that is expected at any time from begin to end."""
        times = range(_number(begin_s), _number(end_s) + 1)
        known = [rate for number in times if (rate := self.expected(number * SLOT_S)) is not None]
        return max(known, default=None)


def _learned(slots: Iterable[_Slot]) -> list[Learned]:
    return [Learned(number, round(slot.mean, 6), slot.seen) for number, slot in enumerate(slots) if slot.seen]


def _number(at_s: float) -> int:
    return math.floor(at_s / SLOT_S)
