"""What one kind of work feels of another: fast calls beside slow ones, people beside a backlog, the lowest lane.

The tail of a fast class is measured alone and with every lane of a slow class saturated, in turns, so that both see
the same weather: with a worker for each class, then with one worker for both. Then a class's interactive lane without
and with a backlog in its batch lane; a class that nobody else uses is asked beside it each time, and tells what the
rest of the plane, full of open runs, and the machine have to do with it.

Promised: p99 ≤ 1.2 × that without on separate workers, ≤ 1.5 × on a shared one, ≤ 1.3 × with a backlog; and a lane
never gets less than 5 % of a saturated class.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.client import HeadwayClient
from loadtest.asking import answer, asking, numbered
from loadtest.backlog import behind, fill
from loadtest.context import Context, broken
from loadtest.generator import Call, Load, generate
from loadtest.pool import Pool, ratio
from loadtest.saturation import Ask, saturated, shares_percent
from loadtest.warmth import warmed
from loadtest.workers import worker_of
from schemas.base import Priority
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.connection import Connection

CONFIG = Path(__file__).parents[1] / "isolation"
RATE_PER_S = 50.0
ROUNDS = 3
"""How often each measurement alternates with its counterpart."""
CALLERS = 16
"""Of each lane of the slow class: twice its slots, so that each lane alone would saturate it."""
SHARE_MS = 200
"""Calls of the slow class where its lanes' shares are counted: short ones, to have a thousand of them."""
BACKLOG = 50_000
BACKLOG_MS = 2_000
SEPARATE, SHARED, BACKLOGGED, LOWEST_PERCENT = 1.2, 1.5, 1.3, 5.0


async def run(context: Context) -> dict[str, Any]:
    """Keys: `idle_p99_ms`, `loaded_p99_ms`, `ratio`; the same in `shared` and `backlog`; `lanes_percent`.

    The duration is that of each p99; `--requests` is the size of the backlog.
    """
    kafka = context.endpoints.kafka
    connection = Connection(kafka, client_id="loadtest")
    async with HeadwayClient(kafka) as headway, Admin(connection) as admin:
        plane = _Plane(context, headway, admin)
        idle, loaded = await plane.beside("embedding", "llm")
        async with worker_of(context, "shared-embedding", "shared-llm"):
            shared = await plane.beside("shared-embedding", "shared-llm")
        lanes = await plane.shares("llm")
        backlog = await plane.backlog("crowded", "calm", context.requests or BACKLOG)
    separate = _compared(idle, loaded)
    together = _compared(*shared)
    return {
        "rate_per_s": plane.rate_per_s,
        "concurrency": None,
        **loaded.as_json(),
        **separate,
        "shared": together,
        "lanes_percent": lanes,
        "backlog": backlog,
        **broken(
            separate=_within(separate, SEPARATE),
            shared=_within(together, SHARED),
            backlog=_within(backlog, BACKLOGGED),
            no_lane_starves=min(lanes.values()) >= LOWEST_PERCENT,
        ),
    }


class _Plane:
    """What is asked of the plane."""

    def __init__(self, context: Context, headway: HeadwayClient, admin: Admin) -> None:
        self._context = context
        self._headway = headway
        self._admin = admin
        self.rate_per_s = context.load.rate_per_s or RATE_PER_S

    async def beside(self, fast: str, slow: str) -> tuple[Pool, Pool]:
        """The fast class alone, and beside the slow one with all of its lanes saturated."""
        alone, loaded = Pool(), Pool()
        await self._warm_up(fast, slow)
        for number in range(ROUNDS):
            alone.add(await generate(self._load(number), self._call(fast)))
            async with saturated(self._asking(slow, {}), CALLERS):
                loaded.add(await generate(self._load(number), self._call(fast)))
        self._context.say(f"isolation: {fast} p99 {alone.p99_ms:.1f} ms, beside {slow} {loaded.p99_ms:.1f} ms")
        return alone, loaded

    async def shares(self, slow: str) -> dict[str, float]:
        """What each lane of a class gets when all of them are saturated."""
        async with saturated(self._asking(slow, {"simulate": {"latency_ms": SHARE_MS}}), CALLERS) as saturation:
            await asyncio.sleep(self._context.load.warm_up_s)
            before = saturation.served.copy()
            await asyncio.sleep(self._context.load.duration_s)
            return shares_percent(before, saturation.served)

    async def backlog(self, crowded: str, calm: str, requests: int) -> dict[str, Any]:
        """The interactive lane of a class without a backlog in its batch lane, and with one."""
        await self._warm_up(crowded, calm)
        without, calm_without = await self._both(crowded, calm)
        self._context.say(f"isolation: {requests} batch requests are being made")
        await fill(self._context.endpoints.kafka, self._admin, crowded, requests, BACKLOG_MS)
        tasks = await behind(self._admin, crowded)
        loaded, calm_loaded = await self._both(crowded, calm)
        self._context.say(f"isolation: p99 {without.p99_ms:.1f} ms, behind {tasks} tasks {loaded.p99_ms:.1f} ms")
        control = _compared(calm_without, calm_loaded)
        return {"tasks": tasks, **_compared(without, loaded), "elsewhere": control}

    async def _both(self, crowded: str, calm: str) -> tuple[Pool, Pool]:
        """Two classes in turns."""
        first, second = Pool(), Pool()
        for number in range(ROUNDS):
            first.add(await generate(self._load(number), self._call(crowded)))
            second.add(await generate(self._load(number), self._call(calm)))
        return first, second

    def _load(self, number: int) -> Load:
        load = self._context.load
        return replace(load, duration_s=load.duration_s / ROUNDS, rate_per_s=self.rate_per_s, seed=load.seed + number)

    def _call(self, pipeline: str) -> Call:
        return asking(self._headway, pipeline, numbered, priority=Priority.INTERACTIVE)

    def _asking(self, pipeline: str, value: dict[str, Any]) -> Ask:
        async def ask(lane: Priority) -> bool:
            return await answer(self._headway, pipeline, value, priority=lane) is not None

        return ask

    async def _warm_up(self, *pipelines: str) -> None:
        for pipeline in pipelines:
            await generate(replace(warmed(self._load(0)), duration_s=0.0), self._call(pipeline))


def _compared(idle: Pool, loaded: Pool) -> dict[str, Any]:
    return {
        "samples": min(len(idle.latencies), len(loaded.latencies)),
        "failed": idle.failed + loaded.failed,
        "idle_p50_ms": idle.latencies.summary_ms(50)["p50"],
        "loaded_p50_ms": loaded.latencies.summary_ms(50)["p50"],
        "idle_p99_ms": idle.p99_ms,
        "loaded_p99_ms": loaded.p99_ms,
        "ratio": ratio(loaded.p99_ms, idle.p99_ms),
    }


def _within(compared: dict[str, Any], promised: float) -> bool:
    """Nothing failed, and the tail is as short as promised."""
    return not compared["failed"] and compared["ratio"] is not None and compared["ratio"] <= promised
