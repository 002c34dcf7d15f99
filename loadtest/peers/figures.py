"""What the lines of a driver say of its system, and how Headway compares."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from loadtest.measure import summary_ms
from loadtest.peers.work import IDEAL_MS

Line = Mapping[str, Any]


def system(lines: Iterable[str]) -> dict[str, Any]:
    """Of a driver's whole report: latencies of the last trial, with one caller, and throughput of the best other one.

    Raises ValueError when it is not whole, or no call of a trial succeeded.
    """
    first, *crowds, alone = [json.loads(line) for line in lines]
    throughput_per_s = {
        crowd["callers"]: round(len(crowd["latencies_s"]) / crowd["duration_s"], 1) for crowd in crowds
    }
    best = max(throughput_per_s, key=lambda callers: throughput_per_s[callers])
    latencies_s = alone["latencies_s"]
    if not latencies_s or not throughput_per_s[best]:
        raise ValueError("no call succeeded")
    return {
        "version": first["version"],
        "latency_ms": summary_ms(latencies_s, 50, 95, 99),
        "added_ms": summary_ms([latency - IDEAL_MS / 1_000 for latency in latencies_s], 50, 95),
        "throughput_per_s": throughput_per_s[best],
        "concurrency": best,
        "by_concurrency": {str(callers): per_s for callers, per_s in throughput_per_s.items()},
        "failed": sum(trial["failed"] for trial in (*crowds, alone)),
        "settings": first["settings"],
    }


def compared(headway: Line, peers: Mapping[str, Line]) -> dict[str, Any]:
    """Headway beside the peers: `best_peer` of these has the most runs a second, `quickest_peer` adds the least."""
    measured = {name: peer for name, peer in peers.items() if "unavailable" not in peer}
    if not measured or "unavailable" in headway:
        return {"best_peer": None, "throughput_ratio": None, "quickest_peer": None, "added_ratio": None}
    best = max(measured, key=lambda name: float(measured[name]["throughput_per_s"]))
    quickest = min(measured, key=lambda name: _added_ms(measured[name]))
    return {
        "best_peer": best,
        "throughput_ratio": round(headway["throughput_per_s"] / measured[best]["throughput_per_s"], 2),
        "quickest_peer": quickest,
        "added_ratio": round(_added_ms(measured[quickest]) / _added_ms(headway), 2),
    }


def _added_ms(figures: Line) -> float:
    return float(figures["added_ms"]["p50"])
