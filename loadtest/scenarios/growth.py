"""What a run costs when it has many parallel steps, and when many others are open: latency, and CPU time by part.

First the fan-out, at the same number of steps a second each time. Then the same load of small runs (two parallel
steps and one more) beside none, a thousand, ten thousand and a hundred thousand runs that are open: they want a class
without a worker.

It promises nothing but that every run succeeds: the figures tell where the cost bends. Half a minute is needed to see
all of it: so often the aggregators write down what is open.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from headway.client import HeadwayClient
from loadtest import resources
from loadtest.asking import asking
from loadtest.backlog import appended, until_appended
from loadtest.context import Context, broken
from loadtest.observation import observe
from loadtest.opening import start_runs
from loadtest.pool import ratio
from loadtest.warmth import warmed
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaProducer
from services.chassis.kafka.connection import Connection

CONFIG = Path(__file__).parents[1] / "growth"
ENVIRONMENT = {"HEADWAY_ORCHESTRATOR_MAX_OPEN_RUNS": "200000"}
"""Else the door would shut at the last level."""
FAN_OUTS = (2, 16, 128)
STEPS_PER_S = 150.0
OPEN_RUNS = (0, 1_000, 10_000, 100_000)
RUNS_PER_S = 20.0
IDLE_S = 10.0
"""How long is looked at what the plane takes when it has nothing to do: that is no run's cost."""
NOBODY = "nobody"
TEXT = "x" * 64
"""A hundred outputs of it are still small enough to travel in a record."""

Figures = dict[str, Any]


async def run(context: Context) -> Figures:
    """Keys: `fan_out{n}` and `open_runs{n}`: `samples, failed, latency_ms, cpu_ms_per_run`, by part and in all.

    `cpu_ratio` and `p50_ratio` are to the first of their kind; with a fan-out, of the CPU time a step takes.
    `--requests` bounds the open runs.
    """
    connection = Connection(context.endpoints.kafka, client_id="loadtest")
    async with AsyncExitStack() as stack:
        headway = await stack.enter_async_context(HeadwayClient(context.endpoints.kafka))
        admin = await stack.enter_async_context(Admin(connection))
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)
        idle = await _idle_cores(context)
        fan_out = {width: await _wide(context, headway, width, idle) for width in FAN_OUTS}
        beside: dict[int, Figures] = {}
        for level in _levels(context):
            await _open(context, producer, admin, level)
            beside[level] = await _observed(context, headway, 2, RUNS_PER_S, idle)
            context.say(f"growth: {level} open, {_told(beside[level])}")
    return {
        "fan_out": _compared(fan_out, {width: width + 1 for width in fan_out}),
        "open_runs": _compared(beside, dict.fromkeys(beside, 1)),
        **broken(every_run_succeeds=not any(each["failed"] for each in (*fan_out.values(), *beside.values()))),
    }


def _levels(context: Context) -> list[int]:
    return [level for level in OPEN_RUNS if context.requests is None or level <= context.requests]


async def _wide(context: Context, headway: HeadwayClient, width: int, idle: Mapping[str, float]) -> Figures:
    figures = await _observed(context, headway, width, STEPS_PER_S / (width + 1), idle)
    context.say(f"growth: fan-out {width}, {_told(figures)}")
    return figures


async def _open(context: Context, producer: AioKafkaProducer, admin: Admin, level: int) -> None:
    """Until so many runs are open in all, and each waits in the queue of nobody."""
    more = level - await appended(admin, NOBODY)
    await start_runs(producer, uuid4().hex[:8], more)
    await until_appended(admin, NOBODY, level)


async def _observed(
    context: Context, headway: HeadwayClient, width: int, rate_per_s: float, idle: Mapping[str, float]
) -> Figures:
    """One load, and the CPU time that it took beyond what the plane takes without any."""
    call = asking(headway, f"wide-{width}", lambda number: {"text": TEXT, "number": number})
    await call(-1)
    measurement = await observe(context, call, warmed(replace(context.load, rate_per_s=rate_per_s)))
    assert measurement.plane is not None
    runs = len(measurement.latencies)
    return {
        "samples": runs,
        "failed": measurement.failed,
        "latency_ms": measurement.latencies.summary_ms(50, 95, 99),
        "cpu_ms_per_run": per_run(measurement.plane.cpu_s, idle, measurement.duration_s, runs),
        "rss_mib": {part: round(mib) for part, mib in measurement.plane.rss_mib.items()},
    }


async def _idle_cores(context: Context) -> dict[str, float]:
    """CPU seconds a second, by part."""
    before = await asyncio.to_thread(resources.usage, context.endpoints)
    await asyncio.sleep(IDLE_S)
    after = await asyncio.to_thread(resources.usage, context.endpoints)
    return {part: cpu_s / IDLE_S for part, cpu_s in resources.cpu_between(before, after).items()}


def per_run(
    cpu_s: Mapping[str, float], idle_cores: Mapping[str, float], duration_s: float, runs: int
) -> dict[str, float]:
    """CPU milliseconds of one run by part, and in `all` but the load's own process."""
    taken_s = {part: max(0.0, taken - idle_cores.get(part, 0.0) * duration_s) for part, taken in cpu_s.items()}
    taken_s["all"] = sum(taken for part, taken in taken_s.items() if part != resources.LOADTEST)
    return {part: round(1_000 * taken / max(1, runs), 3) for part, taken in taken_s.items()}


def _compared(found: Mapping[int, Figures], shares: Mapping[int, int]) -> dict[str, Figures]:
    """Each beside the first: its CPU time a share, which is a step or a run, and its p50."""
    first = next(iter(found))

    def cpu(each: int) -> float:
        return float(found[each]["cpu_ms_per_run"]["all"]) / shares[each]

    def p50(each: int) -> float:
        return float(found[each]["latency_ms"]["p50"])

    return {
        str(each): {
            **found[each],
            "cpu_ratio": ratio(cpu(each), cpu(first)),
            "p50_ratio": ratio(p50(each), p50(first)),
        }
        for each in found
    }


def _told(figures: Figures) -> str:
    return f"p50 {figures['latency_ms']['p50']:.1f} ms, {figures['cpu_ms_per_run']['all']:.1f} CPU ms a run"
