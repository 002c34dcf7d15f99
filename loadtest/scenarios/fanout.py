"""The plane's own share of a run: two parallel 5 ms steps, then one of 50 ms, beside the floor in the same run."""

from dataclasses import replace
from typing import Any

from headway.client import HeadwayClient, NoResponseError
from loadtest.context import Context
from loadtest.generator import generate
from loadtest.measure import percentile, summary_ms
from loadtest.scenarios import floor
from schemas.base import RunStatus

IDEAL_MS = 55.0
TEXT = "x" * 256
TIMEOUT_S = 30.0


async def run(context: Context) -> dict[str, Any]:
    """Keys: `ideal_ms`, `added_ms{p50,p95,p99}`, `floor`, `hop_ratio`, and those of every scenario."""
    half = replace(context, load=replace(context.load, duration_s=context.load.duration_s / 2))
    chain = await floor.measure(half)
    async with HeadwayClient(context.endpoints.kafka) as headway:

        async def call(number: int) -> bool:
            try:
                response = await headway.run("fanout", {"text": TEXT, "number": number}, timeout_s=TIMEOUT_S)
            except NoResponseError:
                return False
            return response.status is RunStatus.SUCCEEDED

        context.say("fanout: warming up")
        await call(-1)
        measurement = await generate(context.load, call)
    added = [latency - IDEAL_MS / 1_000 for latency in measurement.latencies]
    return {
        **measurement.as_json(),
        "ideal_ms": IDEAL_MS,
        "added_ms": summary_ms(added, 50, 95, 99),
        "floor": floor.keys(chain) | {"latency_ms": summary_ms(chain.latencies, 50, 95, 99)},
        "hop_ratio": _ratio(percentile(added, 50), percentile(chain.latencies, 50)),
    }


def _ratio(added_s: float, floor_s: float) -> float | None:
    return round(added_s / floor_s, 3) if floor_s else None
