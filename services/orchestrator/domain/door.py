"""The door: how full the plane is, and whom that leaves outside. Time is the log's, in milliseconds."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from schemas.base import Priority

SHARES: Mapping[Priority, float] = {Priority.INTERACTIVE: 1.0, Priority.STANDARD: 0.9, Priority.BATCH: 0.8}
"""How much of `max_open_runs` may be taken before a lane is shut out. Batch can come back later: it goes first, and
the last tenth is for people who wait. At the default a tenth is 10 s of 1,000 runs a second, more than announcements
are apart: a lane is shut out before its burst has eaten into the next one's share.
"""
FOLD_DELAY_MS = 500
"""A run let in so shortly before an announcement may not be part of it yet: better counted twice than not at all."""
TREND_MS = 30_000
"""How far back the trend looks: ten announcements."""
MIN_RETRY_MS = 1_000
"""Sooner the next announcement will hardly have changed anything."""
MAX_RETRY_MS = 30_000
"""Also when the plane does not empty at all: nobody can say when it will."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """Open runs by events partition, as one aggregator counted them at a log time."""

    at_ms: int
    by_partition: Mapping[int, int]


class Door:
    """Counts open runs as they were announced last, and those that were let in since."""

    def __init__(self, max_open_runs: int, partitions: int) -> None:
        """`partitions` of the events topic: only announcements that cover all of them say how many runs are open."""
        self.max_open_runs = max_open_runs
        self._partitions = partitions
        self._announced = 0
        self._let_in: deque[int] = deque()
        self._readings: deque[tuple[int, int]] = deque()

    @property
    def open_runs(self) -> int:
        """Of which this process knows."""
        return self._announced + len(self._let_in)

    def read(self, announcements: Sequence[Announcement]) -> bool:
        """Takes what is announced now, in log order; whether that is enough to judge by.

        Of two that count the same partition the later one is right: it has changed hands.
        """
        found = {
            partition: (said.at_ms, count) for said in announcements for partition, count in said.by_partition.items()
        }
        if len(found) < self._partitions:
            return False
        as_of = min(at for at, _ in found.values())
        self._announced = sum(count for _, count in found.values())
        while self._let_in and self._let_in[0] < as_of - FOLD_DELAY_MS:
            self._let_in.popleft()
        self._remember(as_of)
        return True

    def admit(self, priority: Priority, run_id: str, now_ms: int) -> int | None:
        """Lets one run in, and counts it. Else in how many milliseconds to come again."""
        excess = self.open_runs - SHARES[priority] * self.max_open_runs
        if excess >= 0:
            return self._retry_after_ms(excess, run_id)
        self._let_in.append(now_ms)
        return None

    def withdraw(self) -> None:
        """One of those let in last does not start after all. They came together: any of their places will do."""
        if self._let_in:
            self._let_in.pop()

    def _remember(self, as_of: int) -> None:
        if not self._readings or as_of > self._readings[-1][0]:
            self._readings.append((as_of, self._announced))
        while self._readings[0][0] < as_of - TREND_MS:
            self._readings.popleft()

    def _retry_after_ms(self, excess: float, run_id: str) -> int:
        """When the excess will be gone if the trend lasts, and up to as long again: by the run's id, so that those
        who were refused together do not come back together.
        """
        (began, before), (at, now) = self._readings[0], self._readings[-1]
        shrank = before - now
        predicted = excess * (at - began) / shrank if shrank > 0 else MAX_RETRY_MS
        bounded = min(max(predicted, MIN_RETRY_MS), MAX_RETRY_MS)
        return round(bounded * (1 + crc32(run_id.encode()) / 2**32))
