"""The store forgets everything, again and again under load: FLUSHALL at random moments.

Promised: nothing is lost, nothing hangs past its deadline, and no request has two answers.
"""

import asyncio
import random
from typing import Any

from loadtest.context import Context, broken
from loadtest.ledger import following
from loadtest.nemesis import store
from loadtest.nemesis.parts import Parts
from loadtest.steady import rate_per_s, steady

FLUSHES = 20
DURATION_S = 60.0
DEADLINE_S = 20.0


async def run(context: Context) -> dict[str, Any]:
    """Keys: `flushes` that were answered, and the ledger's."""
    async with following(context.endpoints.kafka, DEADLINE_S) as ledger:
        flushes = await steady(context, ledger, DURATION_S, DEADLINE_S, lambda: _flush(context))
    verdict = ledger.verdict()
    return {
        **verdict,
        "rate_per_s": rate_per_s(context),
        "flushes": flushes,
        **broken(
            every_flush_bit=flushes == FLUSHES,
            nothing_lost=verdict["lost"] == 0,
            nothing_fails=verdict["failed"] == 0,
            nothing_late=verdict["late"] == 0,
            one_outcome=verdict["conflicting"] == 0,
        ),
    }


async def _flush(context: Context) -> int:
    moments = random.Random(context.load.seed)
    parts, loop = Parts(context.home), asyncio.get_running_loop()
    began, bit = loop.time(), 0
    for moment in sorted(moments.uniform(0, DURATION_S) for _ in range(FLUSHES)):
        await asyncio.sleep(max(0.0, began + moment - loop.time()))
        bit += bool((await store.flush(parts)).seen)
    return bit
