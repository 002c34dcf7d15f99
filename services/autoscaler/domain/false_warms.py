"""Whether pre-warming was right: of the workers started ahead, how many were stopped without a task."""

from collections.abc import Collection
from typing import NamedTuple


class Tally(NamedTuple):
    """Of one model class."""

    started: int = 0
    in_vain: int = 0

    @property
    def false_share(self) -> float:
        """Of those started; 0 of none."""
        return self.in_vain / self.started if self.started else 0.0


class FalseWarms:
    """Of all classes, kept from look to look."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self._prewarmed: set[str] = set()
        self._open: set[str] = set()
        """Started ahead, and no task yet."""

    def observe(self, prewarmed: Collection[str], warm: Collection[str], called: Collection[str]) -> None:
        """One look: the classes pre-warmed from now on, those that have a worker anyway, those that have tasks."""
        self._open -= set(called)
        for model_class in self._open - set(prewarmed):
            tally = self.tallies[model_class]
            self.tallies[model_class] = tally._replace(in_vain=tally.in_vain + 1)
        self._open &= set(prewarmed)
        for model_class in set(prewarmed) - self._prewarmed - set(warm) - set(called):
            tally = self.tallies.get(model_class, Tally())
            self.tallies[model_class] = tally._replace(started=tally.started + 1)
            self._open.add(model_class)
        self._prewarmed = set(prewarmed)
