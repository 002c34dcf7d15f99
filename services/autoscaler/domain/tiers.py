"""Which classes to keep asleep rather than at zero, when a budget says how much that may cost.

A class is worth what it saves: the time its cold starts take runs each hour. The best per dollar comes first, as
long as the budget lasts; then whichever still fits. That is the greedy answer to a knapsack problem; the one most
worth class instead, where that alone is worth more, makes it at least half of the best there is (Lawler 1979). Who
reads the list can check it by hand, which an optimal set would not allow.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple


class Candidate(NamedTuple):
    """A class that could be kept asleep."""

    label: str
    cold_starts_per_hour: float
    """Runs that wait for one, when it is at zero."""
    saved_s: float
    """The time that a load takes longer than a wake-up."""
    critical_share: float
    """Of those runs, how many wait for nothing else meanwhile: the class is on their critical path."""
    usd_per_hour: float
    """Of keeping it asleep."""

    @property
    def criticality(self) -> float:
        """Seconds of waiting saved each hour."""
        return self.cold_starts_per_hour * self.saved_s * self.critical_share

    @property
    def per_dollar(self) -> float:
        """Seconds of waiting saved for a dollar."""
        if not self.criticality:
            return 0.0
        return self.criticality / self.usd_per_hour if self.usd_per_hour else float("inf")


def standby(candidates: Collection[Candidate], budget_usd_hour: float) -> tuple[Candidate, ...]:
    """Those to keep asleep, the best per dollar first; a class that saves nothing is not among them."""
    useful = [each for each in candidates if each.criticality > 0 and each.usd_per_hour <= budget_usd_hour]
    greedy = _fill(sorted(useful, key=_rank), budget_usd_hour)
    best_alone = max(useful, key=lambda each: each.criticality, default=None)
    if best_alone is not None and best_alone.criticality > worth(greedy):
        return (best_alone,)
    return greedy


def worth(candidates: Iterable[Candidate]) -> float:
    """Seconds of waiting saved each hour, by all of them."""
    return sum(each.criticality for each in candidates)


def _rank(candidate: Candidate) -> tuple[float, str]:
    """By name where worth is the same: two leaders choose alike."""
    return (-candidate.per_dollar, candidate.label)


def _fill(ranked: Iterable[Candidate], budget_usd_hour: float) -> tuple[Candidate, ...]:
    chosen: list[Candidate] = []
    left = budget_usd_hour
    for each in ranked:
        if each.usd_per_hour <= left:
            chosen.append(each)
            left -= each.usd_per_hour
    return tuple(chosen)
