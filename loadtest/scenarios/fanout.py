"""The plane's own share of a run: two parallel 5 ms steps, then one of 50 ms, beside the floor in the same run.

One caller's runs rest while their engines work, and a hop is slower after a rest: processors sleep, caches are cold.
So beside one caller the floor is measured twice, one chain after another and as often as there were runs.
"""

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
    """Keys: `ideal_ms`, `added_ms{p50,p95,p99}`, `floor`, `hop_ratio`, and those of every scenario.

    For one caller also `as_often{rate_per_s, floor_ms{p50,p95,p99}, hop_ratio}`.
    """
    half = replace(context, load=replace(context.load, duration_s=context.load.duration_s / 2))
    chain = await floor.measure(half)
    async with HeadwayClient(context.endpoints.kafka) as headway:
        call = asking(headway, "fanout", lambda number: {"text": TEXT, "number": number})
        context.say("fanout: warming up")
        await call(-1)
        measurement = await observe(context, call)
    added_s = measurement.latencies.percentile(50) - IDEAL_MS / 1_000
    return {
        **measurement.as_json(),
        "ideal_ms": IDEAL_MS,
        "added_ms": measurement.latencies.summary_ms(50, 95, 99, less_ms=IDEAL_MS),
        "floor": floor.keys(chain)
        | {
            "latency_ms": chain.latencies.summary_ms(50, 95, 99),
            SERIES: {"percentiles_ms": chain.latencies.curve_ms()},
        },
        "hop_ratio": _ratio(added_s, chain.latencies.percentile(50)),
        **(await _as_often(half, measurement.throughput_per_s, added_s) if context.load.concurrency == 1 else {}),
    }


async def _as_often(context: Context, rate_per_s: float, added_s: float) -> dict[str, Any]:
    rested = await floor.measure(replace(context, load=replace(context.load, rate_per_s=rate_per_s)))
    return {
        "as_often": {
            "rate_per_s": round(rate_per_s, 1),
            "floor_ms": rested.latencies.summary_ms(50, 95, 99),
            "hop_ratio": _ratio(added_s, rested.latencies.percentile(50)),
        }
    }


def _ratio(added_s: float, floor_s: float) -> float | None:
    return round(added_s / floor_s, 3) if floor_s else None
