"""Functions as an author writes them, for the engine to run."""
# ruff: noqa: A002  the first argument of a function is called `input`: that is its contract

import asyncio
import time
from threading import Lock

from pydantic import BaseModel, Field

from headway.functions import StepContext

running = 0
_lock = Lock()


class Wanted(BaseModel):
    text: str = Field(max_length=100)
    seconds: float = 0.0


class Made(BaseModel):
    text: str


def _count(change: int) -> None:
    global running  # noqa: PLW0603  the tests look at it
    with _lock:
        running += change


async def shout(input: Wanted, ctx: StepContext) -> Made:
    _count(1)
    try:
        await asyncio.sleep(input.seconds)
        return Made(text=input.text.upper())
    finally:
        _count(-1)


def shout_in_a_thread(input: Wanted, ctx: StepContext) -> Made:
    _count(1)
    try:
        end = time.monotonic() + input.seconds
        while time.monotonic() < end and not ctx.cancelled.wait(0.005):
            pass
        return Made(text=input.text.upper())
    finally:
        _count(-1)
