"""Measurements of the same thing that were made apart, taken together."""

from collections.abc import Iterable
from typing import Any

from loadtest.latencies import Latencies
from loadtest.measure import SERIES, Measurement
from loadtest.seconds import Second, columns


class Pool:
    """What phases that alternate with others have in common: percentiles over all of them."""

    def __init__(self, measurements: Iterable[Measurement] = ()) -> None:
        self.latencies = Latencies()
        self.failed = 0
        self.duration_s = 0.0
        self._seconds: list[Second] = []
        for measurement in measurements:
            self.add(measurement)

    def add(self, measurement: Measurement) -> None:
        """One more."""
        self.latencies.add(measurement.latencies)
        self.failed += measurement.failed
        self.duration_s += measurement.duration_s
        self._seconds.extend(measurement.seconds.all)

    @property
    def p99_ms(self) -> float:
        """Milliseconds."""
        return self.latencies.summary_ms(99)["p99"]

    def as_json(self) -> dict[str, Any]:
        """The keys that every scenario has."""
        completed = len(self.latencies)
        return {
            "completed": completed,
            "failed": self.failed,
            "duration_s": round(self.duration_s, 3),
            "throughput_per_s": round(completed / self.duration_s, 1) if self.duration_s else 0.0,
            "latency_ms": self.latencies.summary_ms(50, 95, 99) | {"max": round(self.latencies.max_s * 1_000, 3)},
            SERIES: {"percentiles_ms": self.latencies.curve_ms(), "seconds": columns(self._seconds)},
        }


def ratio(part: float, whole: float) -> float | None:
    """To three digits; None of nothing."""
    return round(part / whole, 3) if whole else None
