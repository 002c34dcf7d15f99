"""A lane with tens of thousands of tasks that wait."""

import asyncio

from headway.client import HeadwayClient
from schemas.base import Priority
from schemas.requests import MAX_DEADLINE_MS
from services.chassis.kafka.admin import Admin

SLICE = 500
"""Requests that are acknowledged together."""
POLL_S = 0.5
DISPATCH_TIMEOUT_S = 300.0


async def fill(bootstrap: str, admin: Admin, model_class: str, requests: int, latency_ms: float) -> None:
    """That many batch requests of the pipeline named like its class; returns when all of their tasks are queued.

    They stay for an hour at most. Nobody waits for their answers: what this process would have to remember of them
    would slow the measuring. TimeoutError when they are not dispatched within five minutes.
    """
    value = {"simulate": {"latency_ms": latency_ms}}
    deadline_s = MAX_DEADLINE_MS / 1_000
    end = await appended(admin, model_class) + requests
    async with HeadwayClient(bootstrap, max_outstanding=requests) as headway:
        for first in range(0, requests, SLICE):
            await asyncio.gather(
                *(
                    headway.submit(model_class, value, priority=Priority.BATCH, deadline_s=deadline_s)
                    for _ in range(min(SLICE, requests - first))
                )
            )
    await until_appended(admin, model_class, end)


async def behind(admin: Admin, model_class: str) -> int:
    """Tasks of the class that its workers have not passed, as `headway lag` counts them."""
    lags = await admin.lag(f"headway-worker-{model_class}", [f"inference-tasks-{model_class}"])
    return sum(lag.end - (lag.committed or 0) for lag in lags.values())


async def until_appended(admin: Admin, model_class: str, tasks: int) -> None:
    """Until the class has been given so many tasks in all. TimeoutError when that takes more than five minutes."""
    async with asyncio.timeout(DISPATCH_TIMEOUT_S):
        while await appended(admin, model_class) < tasks:  # noqa: ASYNC110  the broker has no event for it
            await asyncio.sleep(POLL_S)


async def appended(admin: Admin, model_class: str) -> int:
    """Tasks that the class was ever given."""
    lags = await admin.lag(f"headway-worker-{model_class}", [f"inference-tasks-{model_class}"])
    return sum(lag.end for lag in lags.values())
