"""Ten times the rate for a while, then back: how far behind the classes of an assistant fall, and until when.

The workers are as many as before: `scale_out_s`, `over_provision` and each class's `peak_ratio` want a plane that
scales, and are not among the figures.

Promised: every request succeeds, and nothing waits any more a minute after the burst.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headway.client import HeadwayClient
from loadtest import mixing
from loadtest.context import Context, broken
from loadtest.generator import Call, Load, generate
from loadtest.measure import SERIES, Measurement
from loadtest.nemesis.fault import now_ms
from loadtest.observation import observe
from loadtest.pool import Pool
from loadtest.steps import Step, by_class, completed_since, mean_service_s, none_waits_ms, peak_behind
from loadtest.warmth import warmed

CONFIG = mixing.CONFIG
RATE_PER_S = 8.0
TIMES = 10
SHARES = (0.25, 0.25, 0.5)
"""Of the duration: before the burst, in it, and after it."""
RECOVERY_S = 60.0


async def run(context: Context) -> dict[str, Any]:
    """Keys: `lag_peak_s`, `recovery_s`, `by_class{peak_tasks, lag_peak_s, recovery_s}`. Lag is in seconds of work."""
    async with HeadwayClient(context.endpoints.kafka) as headway:
        call = mixing.asking_the_mix(headway)
        began_ms = now_ms()
        usual, extra, over_ms = await _load(context, call)
    steps = by_class(await completed_since(context.endpoints.kafka, began_ms))
    classes = {name: fell_behind(found, mixing.slots()[name], over_ms) for name, found in steps.items()}
    recovery_s = max(each["recovery_s"] for each in classes.values())
    return {
        "rate_per_s": context.load.rate_per_s or RATE_PER_S,
        "concurrency": None,
        **together(usual, extra),
        "lag_peak_s": max(each["lag_peak_s"] for each in classes.values()),
        "recovery_s": recovery_s,
        "by_class": classes,
        **broken(every_call_succeeds=not (usual.failed or extra.failed), recovers=recovery_s <= RECOVERY_S),
    }


async def _load(context: Context, call: Call) -> tuple[Measurement, Measurement, int]:
    """The usual load all along, nine times as much on top of it for a while; and when that was over."""
    rate_per_s, total_s = context.load.rate_per_s or RATE_PER_S, context.load.duration_s
    before_s, burst_s, _ = (share * total_s for share in SHARES)
    steady = warmed(replace(context.load, rate_per_s=rate_per_s))
    burst = Load(burst_s, rate_per_s * (TIMES - 1), seed=context.load.seed + 1, warm_up_s=0.0)
    usual = asyncio.create_task(observe(context, call, steady))
    try:
        await asyncio.sleep(steady.warm_up_s + before_s)
        context.say(f"burst: {TIMES} times {rate_per_s:g} requests/s for {burst_s:g} s")
        over_ms = now_ms() + round(burst_s * 1_000)
        extra = await generate(burst, call)
        return await usual, extra, over_ms
    finally:
        usual.cancel()


def together(usual: Measurement, extra: Measurement) -> dict[str, Any]:
    """The requests of both, which were made side by side; over time, the usual ones, which were made all along."""
    pool = Pool((usual, extra))
    pool.duration_s = usual.duration_s
    assert usual.plane is not None
    runs = max(1, len(pool.latencies))
    return {
        **pool.as_json(),
        "cpu_ms_per_run": {part: round(1_000 * cpu_s / runs, 3) for part, cpu_s in usual.plane.cpu_s.items()},
        SERIES: usual.as_json()[SERIES],
    }


def fell_behind(steps: Sequence[Step], slots: int, over_ms: int) -> dict[str, Any]:
    """One class, of so many slots: its tasks queued or running at the worst moment, in seconds of its work too."""
    peak = peak_behind(steps)
    return {
        "calls": len(steps),
        "peak_tasks": peak,
        "lag_peak_s": round(peak * mean_service_s(steps) / slots, 2),
        "recovery_s": round((none_waits_ms(steps, slots, over_ms) - over_ms) / 1_000, 2),
    }
