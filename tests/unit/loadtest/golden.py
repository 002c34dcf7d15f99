"""The JSON of a load test with everything a page can show, made by hand."""

import copy
from typing import Any

_GOLDEN: dict[str, Any] = {
    "command": "python -m loadtest fanout --concurrency 64 --repeats 2",
    "scenario": "fanout",
    "machine": {"cpus": 2, "processor": "Some CPU", "memory_gib": 7.7, "system": "Linux 6.1", "kafka": "4.3.1"},
    "rate_per_s": None,
    "concurrency": 64,
    "completed": 4_000,
    "failed": 2,
    "duration_s": 4.06,
    "throughput_per_s": 985.2,
    "latency_ms": {"p50": 69.5, "p95": 80.1, "p99": 92.4, "max": 171.0},
    "timing_ms": {"queue": 2.1, "cold": 0.0, "service": 55.2, "coordination": 10.4, "client": 3.4},
    "cpu_ms_per_run": {"kafka": 0.55, "aggregator": 0.35, "worker quick": 0.32, "loadtest": 0.25},
    "rss_mib": {"kafka": 612.0, "aggregator": 95.1, "worker quick": 80.3, "loadtest": 140.2},
    "ideal_ms": 55.0,
    "added_ms": {"p50": 14.5, "p95": 25.1, "p99": 37.4},
    "hop_ratio": 1.31,
    "floor": {
        "hops": 10,
        "hop_ms": {"p50": 1.1, "p99": 2.0},
        "series": {"percentiles_ms": [[0, 9.1], [50, 11.0], [90, 14.2], [99, 20.3]]},
    },
    "series": {
        "percentiles_ms": [[0, 66.0], [50, 69.5], [90, 76.0], [99, 92.4], [99.9, 126.0]],
        "seconds": {
            "completed": [990, 1_010, 0, 1_000, 1_000, 60],
            "failed": [0, 0, 2, 0, 0, 0],
            "p50_ms": [69.0, 70.1, None, 69.5, 69.4, 70.0],
            "p99_ms": [90.3, 95.0, None, 91.1, 92.0, 99.0],
        },
        "lag": {
            "at_s": [0.0, 0.5, 1.0, 1.5],
            "tasks": {"quick interactive": [30, 28, 33, 31], "slow interactive": [55, 60, 49, 52]},
        },
    },
    "spread": {"throughput_per_s": [950.2, 1_020.2], "latency_ms": {"p50": [68.1, 71.2]}},
    "repeats": [{"throughput_per_s": 950.2}, {"throughput_per_s": 1_020.2}],
    "broken": [],
}


def golden() -> dict[str, Any]:
    """A copy that may be changed."""
    return copy.deepcopy(_GOLDEN)
