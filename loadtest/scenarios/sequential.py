"""One step after another, by a client that chains them, beside the pipeline that runs them in parallel.

Both run the same steps in turns: two of 5 ms, then one of 50 ms. Then runs as people have them: two stages that take
5 to 8 s; what share of that is the plane's own, by the runs' own account and by the clock of the client.

Promised: coordination, as runs account for it, is 0.4 % at most. The clock's share has the client's way to and from
the log in it, and the tasks' way to their workers.
"""

import random
import time
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headway.client import HeadwayClient
from loadtest.asking import answer
from loadtest.context import Context, broken
from loadtest.generator import Load, generate
from loadtest.latencies import Latencies
from loadtest.measure import Measurement
from loadtest.pool import ratio
from loadtest.scenarios.fanout import IDEAL_MS, TEXT
from loadtest.warmth import warmed
from schemas.responses import Timing

CONFIG = Path(__file__).parents[1] / "sequential"
RETRIEVAL_MS, ANSWER_MS = (1_500, 2_500), (3_500, 5_500)
RUNS_PER_S = 4.0
"""Of the long ones, whose engines have plenty of slots."""
SHARE_PERCENT = 0.4


class LongRun(NamedTuple):
    """One run of seconds. Milliseconds."""

    wall_ms: float
    """As the client saw it."""
    engines_ms: float
    """Its two stages, as they were asked for."""
    timing: Timing


async def run(context: Context) -> dict[str, Any]:
    """Keys: `ideal_ms`; `added_ms{p50,p95,p99}` of the chain, and `parallel{added_ms}`; `coordination_percent`.

    The ideal is the graph's critical path: what a chain adds to it includes the step that did not run in parallel.
    """
    async with HeadwayClient(context.endpoints.kafka) as headway:
        chain, parallel = await _in_turns(context, headway)
        longs, long_failed = await _long_runs(context, headway)
    percent = shares_percent(longs)
    return {
        **chain.as_json(),
        "ideal_ms": IDEAL_MS,
        "added_ms": chain.latencies.summary_ms(50, 95, 99, less_ms=IDEAL_MS),
        "parallel": {
            "latency_ms": parallel.latencies.summary_ms(50, 95, 99),
            "added_ms": parallel.latencies.summary_ms(50, 95, 99, less_ms=IDEAL_MS),
        },
        "chain_to_parallel": ratio(chain.latencies.percentile(50), parallel.latencies.percentile(50)),
        "long_runs": _described(longs, long_failed),
        "coordination_percent": percent,
        **broken(
            every_call_succeeds=not (chain.failed or parallel.failed or long_failed),
            coordination_is_small=bool(longs) and percent["by_their_account"] <= SHARE_PERCENT,
        ),
    }


async def _in_turns(context: Context, headway: HeadwayClient) -> tuple[Measurement, Measurement]:
    """The chain and the pipeline, once the plane is warm."""
    load = replace(context.load, rate_per_s=None, concurrency=1)
    await _alternate(headway, replace(load, duration_s=warmed(load).warm_up_s))
    chain, parallel = await _alternate(headway, load)
    context.say(f"sequential: p50 {_p50_ms(chain):.1f} ms, beside {_p50_ms(parallel):.1f} ms in parallel")
    return chain, parallel


async def _alternate(headway: HeadwayClient, load: Load) -> tuple[Measurement, Measurement]:
    """One call of each, again and again, by one caller."""
    chain, parallel = Measurement(), Measurement()
    began = time.monotonic()

    async def both(number: int) -> bool:
        await _timed(chain, began, _chained(headway, number))
        await _timed(parallel, began, _parallel(headway, number))
        return True

    await generate(replace(load, warm_up_s=0.0), both)
    return chain, parallel


async def _timed(measurement: Measurement, began: float, work: Awaitable[bool]) -> None:
    due = time.monotonic()
    succeeded = await work
    done = time.monotonic()
    measurement.record(done - began, done - due, succeeded)


async def _parallel(headway: HeadwayClient, number: int) -> bool:
    return await answer(headway, "fanout", {"text": TEXT, "number": number}) is not None


async def _chained(headway: HeadwayClient, number: int) -> bool:
    """Every step is a run of its own, and its output comes back to the client before the next one begins."""
    outputs = []
    for _ in range(2):
        response = await answer(headway, "quick", {"text": TEXT, "number": number})
        if response is None:
            return False
        outputs.append(response.output)
    left, right = outputs
    return await answer(headway, "slow", {"left": left, "right": right}) is not None


async def _long_runs(context: Context, headway: HeadwayClient) -> tuple[list[LongRun], int]:
    """Those that succeeded, and how many did not."""
    luck, runs = random.Random(context.load.seed), list[LongRun]()

    async def call(_: int) -> bool:
        retrieval_ms, answer_ms = luck.uniform(*RETRIEVAL_MS), luck.uniform(*ANSWER_MS)
        value = {"text": TEXT, "retrieval_ms": retrieval_ms, "answer_ms": answer_ms}
        began = time.monotonic()
        response = await answer(headway, "answer", value)
        if response is None:
            return False
        runs.append(LongRun((time.monotonic() - began) * 1_000, retrieval_ms + answer_ms, response.timing))
        return True

    measurement = await generate(replace(context.load, rate_per_s=RUNS_PER_S, warm_up_s=0.0), call)
    return runs, measurement.failed


def shares_percent(runs: list[LongRun]) -> dict[str, float]:
    """Of the time of all runs: what they call coordination, and what the client waited beyond their engines' time."""
    wall_ms, total_ms = sum(run.wall_ms for run in runs), sum(run.timing.total_ms for run in runs)
    coordination_ms = sum(run.timing.coordination_ms for run in runs)
    return {
        "by_their_account": _percent(coordination_ms, total_ms),
        "by_the_clock": _percent(wall_ms - sum(run.engines_ms for run in runs), wall_ms),
    }


def _described(runs: list[LongRun], failed: int) -> dict[str, Any]:
    took, beyond = Latencies(), Latencies()
    for run in runs:
        took.record(run.wall_ms / 1_000)
        beyond.record((run.wall_ms - run.engines_ms) / 1_000)
    return {
        "runs": len(runs),
        "failed": failed,
        "latency_ms": took.summary_ms(50, 95, 99),
        "beyond_engines_ms": beyond.summary_ms(50, 95, 99),
    }


def _p50_ms(measurement: Measurement) -> float:
    return measurement.latencies.summary_ms(50)["p50"]


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 3) if whole else 0.0
