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
from loadtest.workers import end_worker, start_worker

CONFIG = Path(__file__).parents[1] / "scaleout"
CLASS = "bound"
SLOTS = 8
"""Of one worker, as its models.yaml has it."""
LATENCIES_MS = (300, 350, 400, 450, 500)
"""In turn: equal ones would end together, eight at a time, and be counted in lumps."""
WORKERS = (1, 2, 4)
CALLERS_PER_SLOT = 10
"""One runs, the others wait, for longer than it takes to hear of a queue that has become shorter than the others."""
SETTLE_S = 6.0
"""After a worker has come: the partitions are dealt anew, and the orchestrator hears of it."""
EFFICIENCY = 0.95


class Load:
    """Callers that take turns, and when each was answered."""

    def __init__(self, headway: HeadwayClient) -> None:
        self._headway = headway
        self._numbers = itertools.count()
        self.latencies = Latencies()
        self.failed = 0

    async def caller(self) -> None:
        """Asks, again and again."""
        while True:
            began = time.monotonic()
            latency_ms = LATENCIES_MS[next(self._numbers) % len(LATENCIES_MS)]
            if await answer(self._headway, "bound", {"latency_ms": latency_ms}) is None:
                self.failed += 1
            else:
                self.latencies.record(time.monotonic() - began)

    async def throughput_per_s(self, duration_s: float) -> float:
        """What is answered from now on."""
        began, before = time.monotonic(), len(self.latencies)
        await asyncio.sleep(duration_s)
        return (len(self.latencies) - before) / (time.monotonic() - began)


async def run(context: Context) -> dict[str, Any]:
    """Keys: `efficiency`, the lowest of `by_workers{n: {throughput_per_s, efficiency}}`; `ideal_per_s`, of one."""
    duration_s = context.load.duration_s
    async with HeadwayClient(context.endpoints.kafka) as headway, AsyncExitStack() as workers:
        load = Load(headway)
        found: dict[int, float] = {}
        for number in WORKERS:
            for _ in range(number - max(found, default=1)):
                workers.push_async_callback(end_worker, await start_worker(context, CLASS))
            found[number] = await _under_load(load, number, duration_s)
            context.say(f"scaleout: {number} workers, {found[number]:.1f} runs/s")
    efficiencies = efficiency(found)
    lowest = min(efficiencies.values())
    total_s = duration_s * len(WORKERS)
    return {
        "completed": len(load.latencies),
        "failed": load.failed,
        "duration_s": total_s,
        "throughput_per_s": round(found[WORKERS[-1]], 1),
        "latency_ms": load.latencies.summary_ms(50, 95, 99) | {"max": round(load.latencies.max_s * 1_000, 3)},
        "ideal_per_s": SLOTS / (sum(LATENCIES_MS) / len(LATENCIES_MS) / 1_000),
        "by_workers": {
            str(number): {"throughput_per_s": round(found[number], 2), "efficiency": efficiencies[number]}
            for number in WORKERS
        },
        "efficiency": lowest,
        **broken(every_call_succeeds=load.failed == 0, efficient=lowest >= EFFICIENCY),
    }


async def _under_load(load: Load, workers: int, duration_s: float) -> float:
    """Runs a second of so many workers, once they have settled."""
    callers = [asyncio.create_task(load.caller()) for _ in range(workers * SLOTS * CALLERS_PER_SLOT)]
    try:
        await asyncio.sleep(SETTLE_S)
        return await load.throughput_per_s(duration_s)
    finally:
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)


def efficiency(throughputs: dict[int, float]) -> dict[int, float]:
    """By number of workers: throughput_n / (n × throughput_1)."""
    return {number: round(found / (number * throughputs[1]), 3) for number, found in throughputs.items()}
