"""A function with a fault that takes its whole process along, as a crash in native code does."""

import asyncio
import os
import signal

from pydantic import BaseModel

from headway.functions import StepContext


class Asked(BaseModel):
    number: int
    kills: bool
    takes_s: float


class Answered(BaseModel):
    number: int


async def answer(asked: Asked, _ctx: StepContext) -> Answered:
    """Answers after a while; or kills its process, in the middle of it."""
    if asked.kills:
        await asyncio.sleep(asked.takes_s / 2)
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(asked.takes_s)
    return Answered(number=asked.number)
