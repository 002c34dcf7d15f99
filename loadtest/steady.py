"""A steady load on the plane while something is done to it, and what became of every request."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headway.client import HeadwayClient
from loadtest.context import Context
from loadtest.generator import Load, generate
from loadtest.ledger import Ledger

PIPELINE = "fanout"
RATE_PER_S = 20.0
TEXT = "x" * 256
MAX_REQUESTS = 1_000_000
"""The client need not bound what the rate and the time do."""

T = TypeVar("T")


def rate_per_s(context: Context) -> float:
    """The one that was asked for; else one that leaves a small machine room for what is done to the plane."""
    return context.load.rate_per_s or RATE_PER_S


async def steady(
    context: Context,
    ledger: Ledger,
    duration_s: float,
    deadline_s: float,
    disturb: Callable[[], Coroutine[Any, Any, T]],
) -> T:
    """Asks at a steady rate (open loop) while `disturb` runs beside it, for `duration_s` at least; waits for answers.

    The ledger has them all afterwards. Returns what `disturb` returned.
    """
    load = Load(duration_s, rate_per_s(context), seed=context.load.seed, warm_up_s=0.0)
    async with HeadwayClient(context.endpoints.kafka, max_outstanding=MAX_REQUESTS) as headway:

        async def ask(number: int) -> bool:
            request_id = ledger.request_id(number)
            await headway.submit(
                PIPELINE, {"text": TEXT, "number": number}, request_id=request_id, deadline_s=deadline_s
            )
            ledger.acknowledged.add(request_id)
            return True

        await headway.run(PIPELINE, {"text": TEXT, "number": -1}, timeout_s=deadline_s)
        async with asyncio.TaskGroup() as group:
            disturbing = group.create_task(disturb())
            group.create_task(generate(load, ask))
        await ledger.settle()
    return disturbing.result()
