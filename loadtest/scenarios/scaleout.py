"""The same work on one, two and four workers of a class, whose slots are what bounds it.

Promised: n workers do at least 0.95 × n of what one does.
"""

import asyncio
import itertools
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from headway.client import HeadwayClient
from loadtest.asking import answer
from loadtest.context import Context, broken
from loadtest.latencies import Latencies
from loadtest.saturation import saturated
from loadtest.workers import end_worker, start_worker
from schemas.base import Priority

CONFIG = Path(__file__).parents[1] / "scaleout"
CLASS = "bound"
SLOTS = 8
"""Of one worker, as its models.yaml has it."""
LATENCIES_MS = (600, 700, 800, 900, 1_000)
"""In turn: equal ones would end together, eight at a time, and be counted in lumps."""
WORKERS = (1, 2, 4)
CALLERS_PER_SLOT = 6
"""One runs, the others wait, for longer than it takes to hear of a queue that has become shorter than the others."""
SETTLE_S = 6.0
"""After a worker has come: the partitions are dealt anew, and the orchestrator hears of it."""
EFFICIENCY = 0.95


class Calls:
    """Requests that take their latencies in turn, and how long each was out."""

    def __init__(self, headway: HeadwayClient) -> None:
        self._headway = headway
        self._numbers = itertools.count()
        self.latencies = Latencies()
        self.failed = 0

    async def ask(self, lane: Priority) -> bool:
        """One; whether it succeeded."""
        began = time.monotonic()
        latency_ms = LATENCIES_MS[next(self._numbers) % len(LATENCIES_MS)]
        succeeded = await answer(self._headway, CLASS, {"latency_ms": latency_ms}, priority=lane) is not None
        if succeeded:
            self.latencies.record(time.monotonic() - began)
        self.failed += not succeeded
        return succeeded


async def run(context: Context) -> dict[str, Any]:
    """Keys: `efficiency`, the lowest of `by_workers{n: {throughput_per_s, efficiency}}`; `ideal_per_s`, of one."""
    duration_s = context.load.duration_s
    async with HeadwayClient(context.endpoints.kafka) as headway, AsyncExitStack() as workers:
        calls = Calls(headway)
        found: dict[int, float] = {}
        for number in WORKERS:
            for _ in range(number - max(found, default=1)):
                workers.push_async_callback(end_worker, await start_worker(context, CLASS))
            found[number] = await _throughput_per_s(calls, number, duration_s)
            context.say(f"scaleout: {number} workers, {found[number]:.1f} runs/s")
    efficiencies = efficiency(found)
    lowest = min(efficiencies.values())
    total_s = duration_s * len(WORKERS)
    return {
        "completed": len(calls.latencies),
        "failed": calls.failed,
        "duration_s": total_s,
        "throughput_per_s": round(found[WORKERS[-1]], 1),
        "latency_ms": calls.latencies.summary_ms(50, 95, 99) | {"max": round(calls.latencies.max_s * 1_000, 3)},
        "ideal_per_s": SLOTS / (sum(LATENCIES_MS) / len(LATENCIES_MS) / 1_000),
        "by_workers": {
            str(number): {"throughput_per_s": round(found[number], 2), "efficiency": efficiencies[number]}
            for number in WORKERS
        },
        "efficiency": lowest,
        **broken(every_call_succeeds=calls.failed == 0, efficient=lowest >= EFFICIENCY),
    }


async def _throughput_per_s(calls: Calls, workers: int, duration_s: float) -> float:
    """What is answered by so many workers, once they have settled."""
    async with saturated(calls.ask, workers * SLOTS * CALLERS_PER_SLOT, (Priority.INTERACTIVE,)) as saturation:
        await asyncio.sleep(SETTLE_S)
        began, before = time.monotonic(), saturation.served.total()
        await asyncio.sleep(duration_s)
        return (saturation.served.total() - before) / (time.monotonic() - began)


def efficiency(throughputs: dict[int, float]) -> dict[int, float]:
    """By number of workers: throughput_n / (n × throughput_1)."""
    return {number: round(found / (number * throughputs[1]), 3) for number, found in throughputs.items()}
