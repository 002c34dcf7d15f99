"""An assistant's users: 100 % of requests are embedded, 70 % look something up, 25 % run code, in 64 sessions.

Promised: every request succeeds.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headway.client import HeadwayClient
from loadtest import mixing
from loadtest.context import Context, broken
from loadtest.nemesis.fault import now_ms
from loadtest.observation import observe
from loadtest.steps import Step, by_class, completed_since, latencies, mean_service_s
from loadtest.warmth import warmed

CONFIG = mixing.CONFIG
RATE_PER_S = 20.0
"""Keeps half of the slots of the busiest class busy."""


async def run(context: Context) -> dict[str, Any]:
    """Keys: `p95_ms`, `sessions`, `by_class{calls, share_percent, service_ms, latency_ms}`.

    The latency of a class is that of its steps, from the task in its queue to the step's end.
    """
    load = warmed(replace(context.load, rate_per_s=context.load.rate_per_s or RATE_PER_S))
    async with HeadwayClient(context.endpoints.kafka) as headway:
        call = mixing.asking_the_mix(headway)
        began_ms = now_ms()
        measurement = await observe(context, call, load)
    steps = by_class(await completed_since(context.endpoints.kafka, began_ms))
    return {
        "rate_per_s": load.rate_per_s,
        "concurrency": None,
        **measurement.as_json(),
        "p95_ms": measurement.latencies.summary_ms(95)["p95"],
        "sessions": mixing.SESSIONS,
        "by_class": described(steps),
        **broken(every_call_succeeds=measurement.failed == 0),
    }


def described(steps: dict[str, list[Step]]) -> dict[str, Any]:
    """Each class of the mix; its share is of the requests, all of which are embedded."""
    requests = len(steps.get("embedding", ())) or 1
    return {name: _class(found, requests) for name, found in steps.items()}


def _class(steps: Sequence[Step], requests: int) -> dict[str, Any]:
    return {
        "calls": len(steps),
        "share_percent": round(100 * len(steps) / requests, 1),
        "service_ms": round(mean_service_s(steps) * 1_000, 1),
        "latency_ms": latencies(steps).summary_ms(50, 95, 99),
    }
