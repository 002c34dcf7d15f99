"""Cron expressions of five fields: minute, hour, day of the month, month, day of the week (0 or 7: Sunday).

Each is `*`, or numbers, ranges and steps like `0,30`, `1-5`, `*/15`. As in every cron, where both days are given,
either one is enough.
"""

from datetime import datetime
from typing import NamedTuple

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")


class Cron(NamedTuple):
    """The numbers that each field allows."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    @classmethod
    def parse(cls, text: str) -> "Cron":
        """Raises ValueError, which names the field."""
        parts = text.split()
        if len(parts) != len(FIELDS):
            raise ValueError(f"not a cron expression: {text!r}; write five fields, like 0 8 * * 1-5")
        minutes, hours, days, months, weekdays = map(_field, parts, RANGES, FIELDS)
        either_day = not parts[2].startswith("*") and not parts[4].startswith("*")
        return cls(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either_day)

    def matches(self, at: datetime) -> bool:
        """Whether it fires in the minute."""
        return at.minute in self.minutes and self.matches_hour(at)

    def matches_hour(self, at: datetime) -> bool:
        """Whether it fires at all in the hour."""
        if at.hour not in self.hours or at.month not in self.months:
            return False
        by_day, by_weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday if self.either_day else by_day and by_weekday


def _field(text: str, limits: tuple[int, int], name: str) -> frozenset[int]:
    least, most = limits
    numbers: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{least}-{most}" if span == "*" else span).partition("-")
        last = last or (str(most) if step else first)
        if not all(number.isdecimal() for number in (first, last, step or "1")) or step == "0":
            raise ValueError(f"{name}: {part!r} is no number, range or step")
        if not least <= int(first) <= int(last) <= most:
            raise ValueError(f"{name}: {part!r} is not within {least}-{most}")
        numbers.update(range(int(first), int(last) + 1, int(step or "1")))
    return frozenset(numbers)
