"""The plane's own share of a run: two parallel 5 ms steps, then one of 50 ms, beside the floor in the same run."""

from dataclasses import replace
from typing import Any

from headway.client import HeadwayClient
from loadtest.asking import asking
from loadtest.context import Context
from loadtest.measure import SERIES
from loadtest.observation import observe
from loadtest.scenarios import floor

IDEAL_MS = 55.0
TEXT = "x" * 256


async def run(context: Context) -> dict[str, Any]:
    """Keys: `ideal_ms`, `added_ms{p50,p95,p99}`, `floor`, `hop_ratio`, and those of every scenario."""
    half = replace(context, load=replace(context.load, duration_s=context.load.duration_s / 2))
    chain = await floor.measure(half)
    async with HeadwayClient(context.endpoints.kafka) as headway:
        call = asking(headway, "fanout", lambda number: {"text": TEXT, "number": number})
        context.say("fanout: warming up")
        await call(-1)
        measurement = await observe(context, call)
    return {
        **measurement.as_json(),
        "ideal_ms": IDEAL_MS,
        "added_ms": measurement.latencies.summary_ms(50, 95, 99, less_ms=IDEAL_MS),
        "floor": floor.keys(chain)
        | {
            "latency_ms": chain.latencies.summary_ms(50, 95, 99),
            SERIES: {"percentiles_ms": chain.latencies.curve_ms()},
        },
        "hop_ratio": _ratio(measurement.latencies.percentile(50) - IDEAL_MS / 1_000, chain.latencies.percentile(50)),
    }


def _ratio(added_s: float, floor_s: float) -> float | None:
    return round(added_s / floor_s, 3) if floor_s else None
