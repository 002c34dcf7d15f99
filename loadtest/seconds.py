"""A load test second by second: what completed and failed, and how long it took."""

from collections.abc import Sequence
from typing import NamedTuple


class Second(NamedTuple):
    """What ended within one second. Milliseconds; None when nothing completed."""

    completed: int
    failed: int
    p50_ms: float | None
    p99_ms: float | None


class Seconds:
    """Keeps the latencies of the present second alone, so that hours cost no more memory than their seconds."""

    def __init__(self) -> None:
        self._ended: list[Second] = []
        self._latencies: list[float] = []
        self._failed = 0

    def record(self, at_s: float, latency_s: float, *, succeeded: bool) -> None:
        """Something ended so long after the start. Calls come in the order of their ends."""
        while len(self._ended) < int(at_s):
            self._next()
        if succeeded:
            self._latencies.append(latency_s)
        else:
            self._failed += 1

    @property
    def all(self) -> list[Second]:
        """From the first on; the last one may not be over."""
        return [*self._ended, self._now()] if self._latencies or self._failed else list(self._ended)

    def as_json(self) -> dict[str, list[float | None]]:
        """A list for each figure, by second."""
        return columns(self.all)

    def _next(self) -> None:
        self._ended.append(self._now())
        self._latencies, self._failed = [], 0

    def _now(self) -> Second:
        ordered = sorted(self._latencies)
        return Second(len(ordered), self._failed, _percentile_ms(ordered, 50), _percentile_ms(ordered, 99))


def columns(seconds: Sequence[Second]) -> dict[str, list[float | None]]:
    """A list for each figure, by second."""
    return {name: [getattr(second, name) for second in seconds] for name in Second._fields}


def _percentile_ms(ordered: Sequence[float], percent: int) -> float | None:
    """Nearest rank."""
    return round(ordered[-(-len(ordered) * percent // 100) - 1] * 1_000, 3) if ordered else None
