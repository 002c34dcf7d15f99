"""Requests under a seeded nemesis on a plane of two aggregators and two orchestrators, then the history checker.

Promised: nothing lost, one outcome a request, no wrong or torn join, nothing late or stuck; and every fault bit.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadtest.chaos.case import Case
from loadtest.chaos.checker import Anomaly, Verdict, check
from loadtest.chaos.clients import Plan
from loadtest.chaos.run import Ran, ordeal
from loadtest.context import BROKEN, Context
from loadtest.measure import Measurement

CONFIG = Path(__file__).parent.parent / "chaos" / "config"
REPLICAS = {"orchestrator": 2, "aggregator": 2}
"""A zombie has a successor."""
REQUESTS, FAULTS = 20_000, 300
RATE_PER_S = 20.0
EXAMPLES = 5


async def run(context: Context) -> dict[str, Any]:
    """Keys: `accepted`, `duplicates`, each class of anomaly, `faults{kind}`, `examples`."""
    plan = Plan(context.requests or REQUESTS, context.load.rate_per_s or RATE_PER_S, context.load.seed)
    faults = FAULTS if context.faults is None else context.faults
    ran = await ordeal(context.home, plan, faults, context.say)
    verdict = check(ran.entries, ran.seen, ran.strikes)
    _keep(context.home / "chaos" / "anomalies.jsonl", verdict)
    found = {**measured(ran, verdict), **figures(verdict), "healed": ran.healed}
    return found if ran.healed else {**found, BROKEN: [*found[BROKEN], "healed"]}


def figures(verdict: Verdict) -> dict[str, Any]:
    """A verdict as figures."""
    counts = {kind: len(found) for kind, found in verdict.anomalies.items()}
    return {
        "accepted": verdict.accepted,
        "answered": verdict.answered,
        "duplicates": verdict.duplicates,
        **counts,
        "faults": dict(verdict.faults),
        "fault_kinds": len(verdict.faults),
        "examples": {kind: _told(found) for kind, found in verdict.anomalies.items() if found},
        BROKEN: [kind for kind, count in counts.items() if count],
    }


def measured(ran: Ran, verdict: Verdict) -> dict[str, Any]:
    """The keys of every scenario: latencies by the broker's clock, from a request's record to its response's."""
    case = Case(ran.entries, ran.seen, ran.strikes)
    measurement = Measurement(failed=verdict.accepted - verdict.answered)
    for request_id, response in case.first_response.items():
        request = case.asked.get(request_id)
        if request is not None and request.accepted_at_ms is not None:
            measurement.latencies.record((response.place.at_ms - request.accepted_at_ms) / 1_000)
    stamps = [entry.at_ms for entry in ran.entries]
    measurement.duration_s = (max(stamps) - min(stamps)) / 1_000
    return measurement.as_json()


def _told(found: Sequence[Anomaly]) -> list[str]:
    return [f"{anomaly.what}: {anomaly.why}" for anomaly in found[:EXAMPLES]]


def _keep(file: Path, verdict: Verdict) -> None:
    found = [anomaly for anomalies in verdict.anomalies.values() for anomaly in anomalies]
    file.write_text("".join(json.dumps(asdict(anomaly)) + "\n" for anomaly in found), encoding="utf-8")
