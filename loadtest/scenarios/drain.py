"""Workers of one class come and go under load, with calls of 20 s under way.

Promised: nothing runs twice to its end, every call succeeds, and no short call has to wait for 3 s.
"""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from pydantic_core import from_json

from headway.client import HeadwayClient, NoResponseError
from loadtest.context import Context, broken
from loadtest.workers import end_worker, start_worker
from schemas.base import RunStatus
from schemas.topics import EVENTS

CONFIG = Path(__file__).parents[1] / "scaling"
SHORT_MS, SHORT_EVERY_S = 5, 0.05
LONG_MS, LONG_EVERY_S = 20_000, 2.0
DEADLINE_S = 120.0
STEADY_S = 8.0
PROMISED_STALL_S = 3.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request, by this process's clock."""

    is_short: bool
    began: float
    took_s: float
    succeeded: bool


async def run(context: Context) -> dict[str, Any]:
    """Keys: `calls`, `succeeded`, `ran_twice`, `longest_stall_s`, and `stalls_s` after each change."""
    async with HeadwayClient(context.endpoints.kafka) as headway:
        await _call(headway, SHORT_MS)
        async with asyncio.TaskGroup() as group:
            calls: list[asyncio.Task[Call]] = []

            async def keep_calling(latency_ms: int, every_s: float) -> None:
                while True:
                    calls.append(group.create_task(_call(headway, latency_ms)))
                    await asyncio.sleep(every_s)

            loads = [
                group.create_task(keep_calling(*load))
                for load in ((LONG_MS, LONG_EVERY_S), (SHORT_MS, SHORT_EVERY_S))
            ]
            changes = await _scale_out_and_in(context)
            for load in loads:
                load.cancel()
    ended = [call.result() for call in calls]
    short = [call for call in ended if call.is_short]
    succeeded = sum(call.succeeded for call in ended)
    twice = await _ran_twice(context.endpoints.kafka)
    longest_s = max(call.took_s for call in short)
    return {
        "calls": {"short": len(short), "long": len(ended) - len(short)},
        "succeeded": succeeded,
        "ran_twice": twice,
        "longest_stall_s": round(longest_s, 2),
        "stalls_s": {name: _stall_s(short, began, over) for name, began, over in changes},
        **broken(
            every_call_succeeds=succeeded == len(ended),
            nothing_runs_twice=twice == 0,
            nobody_waits_long=longest_s <= PROMISED_STALL_S,
        ),
    }


async def _call(headway: HeadwayClient, latency_ms: int) -> Call:
    began = time.monotonic()
    try:
        response = await headway.run("mixed", {"latency_ms": latency_ms}, timeout_s=DEADLINE_S)
        succeeded = response.status is RunStatus.SUCCEEDED
    except NoResponseError:
        succeeded = False
    return Call(latency_ms == SHORT_MS, began, time.monotonic() - began, succeeded)


async def _scale_out_and_in(context: Context) -> list[tuple[str, float, float]]:
    """From one worker to three and back: each change, when it began, and when the next one did."""
    marks: list[tuple[str, float]] = []

    async def steadily(name: str) -> None:
        context.say(f"drain: {name}")
        marks.append((name, time.monotonic()))

    async with AsyncExitStack() as stack:
        await steadily("one")
        await asyncio.sleep(STEADY_S)
        workers = []
        for name in ("two", "three"):
            await steadily(name)
            workers.append(await start_worker(context, "mixed"))
            stack.push_async_callback(end_worker, workers[-1])
            await asyncio.sleep(STEADY_S)
        for name, worker in zip(("two again", "one again"), workers, strict=True):
            await steadily(name)
            await end_worker(worker)
            await asyncio.sleep(STEADY_S)
    overs = [began for _, began in marks[1:]] + [time.monotonic()]
    return [(name, began, over) for (name, began), over in zip(marks, overs, strict=True)]


async def _ran_twice(bootstrap: str) -> int:
    """Attempts with more than one `step-completed` in the log."""
    consumer = AIOKafkaConsumer(EVENTS, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    done: Counter[tuple[str, str, int]] = Counter()
    try:
        while batches := await consumer.getmany(timeout_ms=2_000):
            events = (from_json(record.value) for records in batches.values() for record in records)
            done.update((e["run_id"], e["step"], e["attempt"]) for e in events if e["type"] == "step-completed")
    finally:
        await consumer.stop()
    return sum(count - 1 for count in done.values())


def _stall_s(short: list[Call], began: float, over: float) -> float:
    return round(max((call.took_s for call in short if began <= call.began < over), default=0.0), 2)
