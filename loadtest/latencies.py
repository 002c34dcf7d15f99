"""Latencies of any number of requests in bounded memory: an HdrHistogram of 3 significant digits."""

from hdrh.histogram import HdrHistogram

LONGEST_S = 300.0
"""What takes longer is counted as this long."""
DIGITS = 3
CURVE = (0, *range(5, 95, 5), 95, *(96, 97, 98, 99), *(99.5, 99.9, 99.95, 99.99, 99.995, 99.999))
"""Percentiles that a plot is drawn through, but for those that so few values do not have."""


class Latencies:
    """From 1 µs to 300 s, to 0.1 %; about 160 KB, whatever their number."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, round(LONGEST_S * 1e6), DIGITS)
        """In microseconds."""
        self.total_s = 0.0
        self.max_s = 0.0
        """The longest, exact."""

    def record(self, seconds: float) -> None:
        """One more; a negative one (a clock that was set back) counts as none at all."""
        within = min(max(seconds, 0.0), LONGEST_S)
        self.total_s += within
        self.max_s = max(self.max_s, within)
        self._histogram.record_value(round(within * 1e6))

    def add(self, other: "Latencies") -> None:
        """All of another's."""
        self.total_s += other.total_s
        self.max_s = max(self.max_s, other.max_s)
        self._histogram.add(other._histogram)

    def __len__(self) -> int:
        return int(self._histogram.total_count)

    @property
    def mean_s(self) -> float:
        """Exact, in seconds; 0 of nothing."""
        return self.total_s / len(self) if len(self) else 0.0

    def percentile(self, percent: float) -> float:
        """Seconds that `percent` of all do not exceed (nearest rank, to 0.1 %); 0 of nothing."""
        return self._at(percent)[percent] / 1_000

    def summary_ms(self, *percents: float, less_ms: float = 0.0) -> dict[str, float]:
        """`{"p50": …}` in milliseconds; `less_ms` is taken off each, which may leave less than nothing."""
        found = self._at(*percents)
        return {f"p{percent:g}": round(found[percent] - less_ms, 3) for percent in percents}

    def curve_ms(self) -> list[tuple[float, float]]:
        """(percentile, milliseconds), ascending, up to the last percentile that one value in so many can show."""
        shown = [percent for percent in CURVE if len(self) >= _shown_by(percent)]
        return [(percent, round(ms, 3)) for percent, ms in self._at(*shown).items()]

    def _at(self, *percents: float) -> dict[float, float]:
        """Milliseconds by percentile, ascending, from one pass over the buckets."""
        found = self._histogram.get_percentile_to_value_dict(list(percents))
        return {percent: min(found.get(percent, 0) / 1_000, self.max_s * 1_000) for percent in sorted(percents)}


def _shown_by(percent: float) -> int:
    """How many values there must be for one of them to lie beyond."""
    return round(100 / (100 - percent))
