"""Waiting for an engine, but not for one that does not stop when it is told to."""

import asyncio
from asyncio import Task
from collections.abc import Coroutine
from typing import Any, TypeVar

OBEY_S = 0.5
"""What is told to stop has so long to do so; then nobody waits for it any more."""

T = TypeVar("T")


async def stopped(work: Task[Any]) -> bool:
    """Tells it to stop; whether it did."""
    work.cancel()
    await asyncio.wait({work}, timeout=OBEY_S)
    return work.done()


async def bounded(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """What it returns or raises; TimeoutError when that takes longer, even if it swallows its cancellation."""
    task = asyncio.create_task(work)
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(task)
    finally:
        if not task.done():
            await stopped(task)
