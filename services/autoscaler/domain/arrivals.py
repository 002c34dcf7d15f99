"""When a record of a partition was appended, told from where the partition's end was seen to be, and when.

That costs nothing, and is right to a second while somebody looks every second. What was appended while nobody looked
has to be read.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

MAX_MARKS = 120
"""Two minutes of a partition that is appended to in every second."""
MAX_GAP_MS = 3_000
"""Between two looks. A stamp told from a longer gap could be as wrong as that."""
LEAST_SPAN_MS = 5_000
"""Of a rate. Of less time it would be mostly chance."""


@dataclass(slots=True)
class _Mark:
    """An end of the partition, and the first and the last time it was seen."""

    end: int
    first_ms: int
    last_ms: int


class _Stamp(NamedTuple):
    offset: int
    at_ms: float


class Arrivals:
    """Of one partition. Times are the log's, in milliseconds."""

    def __init__(self) -> None:
        self._marks: list[_Mark] = []
        self._stamp: _Stamp | None = None
        """The last one told or learned: a record that stays the oldest keeps its age, however long ago that was."""

    def observe(self, end: int, at_ms: int) -> None:
        """The partition's end at a time. One that has shrunk belongs to another log: nothing of the old one holds."""
        if self._marks and end < self._marks[-1].end:
            self._marks.clear()
            self._stamp = None
        if self._marks and end == self._marks[-1].end:
            self._marks[-1].last_ms = max(at_ms, self._marks[-1].last_ms)
            return
        at_ms = max(at_ms, self._marks[-1].last_ms) if self._marks else at_ms
        self._marks.append(_Mark(end, at_ms, at_ms))
        del self._marks[:-MAX_MARKS]

    def learn(self, offset: int, at_ms: int) -> None:
        """The stamp that a record was read to have."""
        self._stamp = _Stamp(offset, at_ms)

    def stamp_of(self, offset: int) -> float | None:
        """When the record was appended; None when only reading it will tell."""
        if self._stamp is None or self._stamp.offset != offset:
            estimate = self._estimate(offset)
            self._stamp = None if estimate is None else _Stamp(offset, estimate)
        return None if self._stamp is None else self._stamp.at_ms

    def per_s(self, window_ms: int) -> float | None:
        """Records appended a second, up to the last look; None before the partition was looked at for 5 s.

        Over the window, or as much of it as was looked at. If nobody looked when it began, over all the time since
        somebody did: what came meanwhile must not count as if it had come just now.
        """
        if not self._marks:
            return None
        newest = self._marks[-1]
        start_ms = newest.last_ms - window_ms
        base = self._marks[max(0, bisect_right(self._marks, start_ms, key=lambda mark: mark.first_ms) - 1)]
        span_ms = newest.last_ms - min(max(start_ms, base.first_ms), base.last_ms)
        return None if span_ms < LEAST_SPAN_MS else 1_000 * (newest.end - base.end) / span_ms

    def _estimate(self, offset: int) -> float | None:
        """Records that came between two looks are taken to have come evenly."""
        place = bisect_right(self._marks, offset, key=lambda mark: mark.end)
        if not 0 < place < len(self._marks):
            return None
        before, after = self._marks[place - 1], self._marks[place]
        gap_ms = after.first_ms - before.last_ms
        if gap_ms > MAX_GAP_MS:
            return None
        share = (offset - before.end + 1) / (after.end - before.end + 1)
        return before.last_ms + share * gap_ms
