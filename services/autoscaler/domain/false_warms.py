"""Whether pre-warming was right: of the workers started ahead, how many were stopped without a task."""

from collections.abc import Collection
from typing import NamedTuple


class Tally(NamedTuple):
    """Of one queue."""

    started: int = 0
    in_vain: int = 0

    @property
    def false_share(self) -> float:
        """Of those started; 0 of none."""
        return self.in_vain / self.started if self.started else 0.0


class FalseWarms:
    """Of all queues, kept from look to look."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self._prewarmed: set[str] = set()
        self._open: set[str] = set()
        """Started ahead, and no task yet."""

    def observe(self, prewarmed: Collection[str], warm: Collection[str], called: Collection[str]) -> None:
        """One look: the queues pre-warmed from now on, those that have a worker anyway, those that have tasks."""
        self._open -= set(called)
        for label in self._open - set(prewarmed):
            tally = self.tallies[label]
            self.tallies[label] = tally._replace(in_vain=tally.in_vain + 1)
        self._open &= set(prewarmed)
        for label in set(prewarmed) - self._prewarmed - set(warm) - set(called):
            tally = self.tallies.get(label, Tally())
            self.tallies[label] = tally._replace(started=tally.started + 1)
            self._open.add(label)
        self._prewarmed = set(prewarmed)
