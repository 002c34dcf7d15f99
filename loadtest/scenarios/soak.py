"""Half an hour at half of the most that the plane does, with W = 2 min: whether it stays as quick and as small.

Promised: no request fails, p99 of the last five minutes is at most 1.2 × that of the first, and no service's memory
grows by more than 5 % after the first five minutes. A shorter duration has shorter windows: a third of it at most.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from headway.client import HeadwayClient
from loadtest import resources
from loadtest.asking import asking
from loadtest.context import ONE_MACHINE, Context, broken
from loadtest.generator import Call, Load, generate
from loadtest.measure import Measurement
from loadtest.pool import Pool, ratio
from loadtest.scenarios.fanout import TEXT
from loadtest.warmth import warmed

ENVIRONMENT = {**ONE_MACHINE, "HEADWAY_AGGREGATOR_IDEMPOTENCY_WINDOW_MS": "120000"}
WINDOW_S = 300.0
MAXIMUM_CALLERS = 512
MAXIMUM_S = 15.0
"""How long the maximum is looked for, when no rate is given."""
SAMPLES = 150
"""Of the memory, in a window."""
NOT_SERVICES = {"kafka", "valkey", "loadtest", "plane"}
"""Parts whose memory is reported, and not promised: the broker, the store, and this process."""
DRIFT, GROWTH = 1.2, 1.05


class Sample(NamedTuple):
    """Memory at one moment, in MiB by part."""

    at_s: float
    rss_mib: Mapping[str, float]


async def run(context: Context) -> dict[str, Any]:
    """Keys: `rate_per_s`, `maximum_per_s`, `p99_drift`, `rss_growth{part}` of every part of the plane, `windows`."""
    async with HeadwayClient(context.endpoints.kafka, max_outstanding=1_000_000) as headway:
        call = asking(headway, "fanout", lambda number: {"text": TEXT, "number": number})
        await call(-1)
        maximum = None if context.load.rate_per_s else await _maximum_per_s(context, call)
        rate_per_s = context.load.rate_per_s or (maximum or 0.0) / 2
        context.say(f"soak: {rate_per_s:.1f} runs/s for {context.load.duration_s:g} s")
        first, middle, last, samples = await _soak(context, call, rate_per_s)
    growth = rss_growth(samples, _window_s(context))
    failed = first.failed + middle.failed + last.failed
    drift = ratio(last.latencies.percentile(99), first.latencies.percentile(99))
    promised = {part: grown for part, grown in growth.items() if part not in NOT_SERVICES}
    return {
        **Pool((first, middle, last)).as_json(),
        "rate_per_s": round(rate_per_s, 1),
        "maximum_per_s": maximum,
        "p99_drift": drift,
        "rss_growth": growth,
        "windows": {"first": _window(first), "last": _window(last)},
        **broken(
            no_errors=failed == 0,
            stays_quick=drift is not None and drift <= DRIFT,
            stays_small=bool(promised) and max(promised.values()) <= GROWTH,
        ),
    }


async def _maximum_per_s(context: Context, call: Call) -> float:
    """Runs a second that many callers get when they take turns."""
    load = Load(MAXIMUM_S, None, MAXIMUM_CALLERS, context.load.seed, warm_up_s=3.0)
    found = round((await generate(load, call)).throughput_per_s, 1)
    context.say(f"soak: at most {found} runs/s")
    return found


async def _soak(
    context: Context, call: Call, rate_per_s: float
) -> tuple[Measurement, Measurement, Measurement, Sequence[Sample]]:
    """The first window, the time between, and the last window; and the plane's memory all along."""
    total_s = context.load.duration_s
    window_s = _window_s(context)
    load = replace(context.load, rate_per_s=rate_per_s)
    async with _sampling(context) as samples:
        first = await generate(warmed(replace(load, duration_s=window_s)), call)
        middle = await generate(
            replace(load, duration_s=total_s - 2 * window_s, seed=load.seed + 1, warm_up_s=0), call
        )
        last = await generate(replace(load, duration_s=window_s, seed=load.seed + 2, warm_up_s=0), call)
    return first, middle, last, samples


@asynccontextmanager
async def _sampling(context: Context) -> AsyncIterator[list[Sample]]:
    samples: list[Sample] = []
    began = time.monotonic()

    async def sample() -> None:
        while True:
            used = await asyncio.to_thread(resources.usage, context.endpoints)
            samples.append(Sample(time.monotonic() - began, resources.rss_mib(used)))
            await asyncio.sleep(_window_s(context) / SAMPLES)

    sampling = asyncio.create_task(sample())
    try:
        yield samples
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)


def rss_growth(samples: Sequence[Sample], window_s: float) -> dict[str, float]:
    """By part: its memory at the end, in proportion to that after the first window. Medians of a fifth of a window:

    a snapshot that is just being written is no growth.
    """
    end_s, look_s = samples[-1].at_s, window_s / 5
    then = _median_rss([each for each in samples if window_s <= each.at_s <= window_s + look_s])
    now = _median_rss([each for each in samples if each.at_s >= end_s - look_s])
    return {part: round(now[part] / then[part], 3) for part in then if part in now}


def _median_rss(samples: Sequence[Sample]) -> dict[str, float]:
    parts = {part for sample in samples for part in sample.rss_mib}
    return {part: median(sample.rss_mib[part] for sample in samples if part in sample.rss_mib) for part in parts}


def _window_s(context: Context) -> float:
    return min(WINDOW_S, context.load.duration_s / 3)


def _window(measurement: Measurement) -> dict[str, Any]:
    return {"samples": len(measurement.latencies), **measurement.latencies.summary_ms(50, 95, 99)}
