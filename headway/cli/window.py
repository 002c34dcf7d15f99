"""What moved on the metrics pages within a while: pure. What cannot be told is None or not there, never 0."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headway.cli.scrapes import Counts, Scrape, Series
    from schemas.metrics import Metric

By = tuple[str, ...]
"""Values of the labels that were asked for, in that order."""


class Sample(NamedTuple):
    """One series of one process."""

    name: str
    labels: Mapping[str, str]
    value: float
    rise: float | None
    """By how much it rose since the process was first seen; None when it was seen only once."""
    seconds: float
    """Since then."""


class Window:
    """Keeps the scrapes of the last `length_s` seconds, and the one before them."""

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._scrapes: deque[Scrape] = deque()

    def add(self, scrape: Scrape) -> Movement:
        """What moved up to now."""
        self._scrapes.append(scrape)
        while len(self._scrapes) > 2 and self._scrapes[1].at_s <= scrape.at_s - self._length_s:
            self._scrapes.popleft()
        return Movement(self._scrapes)


class Movement:
    """From the first scrape to the last."""

    def __init__(self, scrapes: Collection[Scrape]) -> None:
        first, *_, self.last = (next(iter(scrapes)), *scrapes)
        self.seconds = self.last.at_s - first.at_s
        self._samples: dict[str, list[Sample]] = {}
        for sample in _samples(scrapes, self.last):
            self._samples.setdefault(sample.name, []).append(sample)

    def now(self, metric: Metric, *by: str) -> dict[By, float]:
        """Sums of a gauge over all processes."""
        return _summed((_values(s.labels, by), s.value) for s in self._of(metric.name))

    def told(self, metric: Metric, *by: str) -> dict[By, float]:
        """A gauge that each of several processes tells of the same thing: the largest."""
        found: dict[By, float] = {}
        for sample in self._of(metric.name):
            key = _values(sample.labels, by)
            found[key] = max(sample.value, found.get(key, sample.value))
        return found

    def per_second(self, metric: Metric, *by: str) -> dict[By, float]:
        """How fast a counter rises."""
        return _summed(
            (_values(sample.labels, by), sample.rise / sample.seconds)
            for sample in self._of(metric.name)
            if sample.rise is not None
        )

    def quantiles(self, metric: Metric, shares: Collection[float], *by: str) -> dict[By, list[float]]:
        """Of a histogram's observations, in its unit; nothing where nothing was observed."""
        rises = _summed(
            ((*_values(sample.labels, by), sample.labels["le"]), sample.rise)
            for sample in self._of(f"{metric.name}_bucket")
            if sample.rise is not None
        )
        buckets: dict[By, dict[float, float]] = {}
        for (*key, bound), rise in rises.items():
            buckets.setdefault(tuple(key), {})[float(bound)] = rise
        return {
            key: [quantile(share, cumulative) for share in shares]
            for key, cumulative in buckets.items()
            if max(cumulative.values()) > 0
        }

    def _of(self, name: str) -> list[Sample]:
        return self._samples.get(name, [])


def quantile(share: float, cumulative: Mapping[float, float]) -> float:
    """Below what `share` of the observations stayed: linear within a bucket, as Prometheus tells it.

    `cumulative`: observations up to each bound, infinity included. What lies past the last bound is said to be there.
    """
    rank = share * max(cumulative.values())
    for (low, below), (bound, count) in pairwise([(0.0, 0.0), *sorted(cumulative.items())]):
        if count >= rank and count > below:
            return low if bound == float("inf") else low + (bound - low) * (rank - below) / (count - below)
    return 0.0


def _samples(scrapes: Iterable[Scrape], last: Scrape) -> Iterator[Sample]:
    for process, counts in last.processes.items():
        first = next(scrape for scrape in scrapes if process in scrape.processes)
        seconds = last.at_s - first.at_s
        before = first.processes[process]
        for (name, labels), value in counts.items():
            rise = _rise(before, (name, labels), value) if seconds > 0 else None
            yield Sample(name, dict(labels), value, rise, seconds)


def _rise(before: Counts, series: Series, value: float) -> float:
    """A series that was not there has begun at 0, and so has that of a process that was started again."""
    earlier = before.get(series, 0.0)
    return value - earlier if value >= earlier else value


def _summed(parts: Iterable[tuple[By, float]]) -> dict[By, float]:
    found: dict[By, float] = {}
    for key, value in parts:
        found[key] = found.get(key, 0.0) + value
    return found


def _values(labels: Mapping[str, str], by: Iterable[str]) -> By:
    return tuple(labels.get(name, "") for name in by)
