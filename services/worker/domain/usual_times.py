"""How long an engine's calls usually take. Pure."""

import math

MEMORY_S = 60.0
"""What was usual so long ago counts a third."""


class UsualTimes:
    """A running mean for each size of batch, in powers of two: a batch may take as long as its tasks one by one."""

    def __init__(self) -> None:
        self._means: dict[int, tuple[float, float, int]] = {}
        """By bits of the size: the mean, when it last changed, and of how many calls it is."""

    def learn(self, tasks: int, took_s: float, now_s: float) -> None:
        """One more call of so many tasks took so long. The first few all count the same."""
        mean_s, then_s, calls = self._means.get(tasks.bit_length(), (0.0, now_s, 0))
        weight = max(1 / (calls + 1), 1 - math.exp((then_s - now_s) / MEMORY_S))
        self._means[tasks.bit_length()] = (mean_s + weight * (took_s - mean_s), now_s, calls + 1)

    def of(self, tasks: int) -> float | None:
        """Seconds; None for a size that was not seen."""
        found = self._means.get(tasks.bit_length())
        return found[0] if found is not None else None

    def forget(self) -> None:
        """Nothing is usual any more."""
        self._means.clear()
