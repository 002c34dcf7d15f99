"""What a load test saw, counted from the moment each request was due, not from when it got out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.latencies import Latencies
from loadtest.seconds import Seconds
from schemas.responses import Timing

Outcome = bool | Timing
"""Whether a request succeeded; a run that did may tell where its time went instead."""
SERIES = "series"
"""The key of what is for plots: too long to be read."""
PARTS_OF_A_RUN = ("queue", "cold", "service", "coordination")


@dataclass(slots=True)
class PlaneUse:
    """What a plane took while it was measured, by part: see `loadtest.resources` and `loadtest.lags`."""

    cpu_s: dict[str, float]
    rss_mib: dict[str, float]
    lag: dict[str, Any]


@dataclass(slots=True)
class Measurement:
    """The outcome of one load."""

    latencies: Latencies = field(default_factory=Latencies)
    """Of what completed."""
    failed: int = 0
    duration_s: float = 0.0
    seconds: Seconds = field(default_factory=Seconds)
    timings: int = 0
    """Runs that told where their time went."""
    timing_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS_OF_A_RUN, 0.0))
    """Of all of them together."""
    plane: PlaneUse | None = None

    def record(self, at_s: float, latency_s: float, outcome: Outcome) -> None:
        """A request ended, so long after the measured time began."""
        self.duration_s = max(self.duration_s, at_s)
        self.seconds.record(at_s, latency_s, succeeded=bool(outcome))
        if not outcome:
            self.failed += 1
            return
        self.latencies.record(latency_s)
        if isinstance(outcome, Timing):
            self._record_timing(outcome)

    @property
    def throughput_per_s(self) -> float:
        """Completed requests a second."""
        return len(self.latencies) / self.duration_s if self.duration_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """The keys that every scenario has; then what is known of the plane, and `series` for plots."""
        series = {"percentiles_ms": self.latencies.curve_ms(), "seconds": self.seconds.as_json()}
        return {
            "completed": len(self.latencies),
            "failed": self.failed,
            "duration_s": round(self.duration_s, 3),
            "throughput_per_s": round(self.throughput_per_s, 1),
            "latency_ms": self.latencies.summary_ms(50, 95, 99) | {"max": _ms(self.latencies.max_s)},
            **({"timing_ms": self.mean_timing_ms()} if self.timings else {}),
            **(self._plane_use(self.plane) if self.plane else {}),
            SERIES: series | ({"lag": self.plane.lag} if self.plane and self.plane.lag else {}),
        }

    def mean_timing_ms(self) -> dict[str, float]:
        """Where the time of a run went, its own account; `client` is the rest, on the way there and back."""
        means = {part: ms / max(1, self.timings) for part, ms in self.timing_ms.items()}
        client_ms = self.latencies.mean_s * 1_000 - sum(means.values())
        return {part: round(ms, 3) for part, ms in (means | {"client": client_ms}).items()}

    def _record_timing(self, timing: Timing) -> None:
        self.timings += 1
        for part in PARTS_OF_A_RUN:
            self.timing_ms[part] += getattr(timing, f"{part}_ms")

    def _plane_use(self, plane: PlaneUse) -> dict[str, Any]:
        runs = max(1, len(self.latencies))
        return {
            "cpu_ms_per_run": {part: round(cpu_s * 1_000 / runs, 3) for part, cpu_s in plane.cpu_s.items()},
            "rss_mib": {part: round(mib, 1) for part, mib in plane.rss_mib.items()},
        }


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of all do not exceed (nearest rank); 0 of nothing."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1] if ordered else 0.0


def summary_ms(seconds: Sequence[float], *percents: int) -> dict[str, float]:
    """`{"p50": …}` in milliseconds."""
    return {f"p{percent}": _ms(percentile(seconds, percent)) for percent in percents}


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 3)
