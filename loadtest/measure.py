"""What a load test saw: every latency, counted from the moment its request was due, not from when it got out."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Measurement:
    """The outcome of one load. Latencies in seconds."""

    latencies: list[float] = field(default_factory=list)
    failed: int = 0
    duration_s: float = 0.0

    @property
    def throughput_per_s(self) -> float:
        """Completed requests a second."""
        return len(self.latencies) / self.duration_s if self.duration_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """The keys that every scenario has."""
        return {
            "completed": len(self.latencies),
            "failed": self.failed,
            "duration_s": round(self.duration_s, 3),
            "throughput_per_s": round(self.throughput_per_s, 1),
            "latency_ms": summary_ms(self.latencies, 50, 95, 99) | {"max": _ms(max(self.latencies, default=0.0))},
        }


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of all do not exceed (nearest rank); 0 of nothing."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1] if ordered else 0.0


def summary_ms(seconds: Sequence[float], *percents: int) -> dict[str, float]:
    """`{"p50": …}` in milliseconds."""
    return {f"p{percent}": _ms(percentile(seconds, percent)) for percent in percents}


def machine() -> dict[str, Any]:
    """Where it ran: figures of two machines are not comparable."""
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 3)
