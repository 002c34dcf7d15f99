"""One task kills every worker that runs it, among neighbours in its partition: what it costs them.

Promised: it is dead-lettered after three deliveries, no neighbour is, and none is delayed by more than 45 s in all.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord

from headway.client import HeadwayClient, NoResponseError
from loadtest.context import Context, broken
from schemas.base import RunStatus
from schemas.responses import InferenceResponse

CONFIG = Path(__file__).parents[1] / "fragile"
DEAD_LETTERS = "inference-tasks-fragile-dlq"
NEIGHBOURS = 40
POISON_AT = 10
EVERY_S = 0.05
TAKES_S = 0.2
DEADLINE_S = 150.0
PROMISED_S = 45.0


async def run(context: Context) -> dict[str, Any]:
    """Keys: `neighbours`, `neighbours_succeeded`, `neighbours_delayed_s`, `poison_took_s`, `dead_letters`."""
    async with HeadwayClient(context.endpoints.kafka) as headway:

        async def call(number: int) -> tuple[InferenceResponse | None, float]:
            value = {"number": number, "kills": number == POISON_AT, "takes_s": TAKES_S}
            began = time.monotonic()
            try:
                response = await headway.run("fragile", value, timeout_s=DEADLINE_S)
            except NoResponseError:
                response = None
            return response, time.monotonic() - began

        await call(-1)  # a first run finds nobody warm
        context.say(f"poison: one among {NEIGHBOURS} neighbours")
        calls = []
        for number in range(NEIGHBOURS + 1):
            calls.append(asyncio.create_task(call(number)))
            await asyncio.sleep(EVERY_S)
        ended = await asyncio.gather(*calls)
    poison, poison_took_s = ended.pop(POISON_AT)
    delays = sorted(took_s - TAKES_S for _, took_s in ended)
    succeeded = sum(_status(response) is RunStatus.SUCCEEDED for response, _ in ended)
    letters = await _dead_letters(context.endpoints.kafka)
    return {
        "neighbours": NEIGHBOURS,
        "neighbours_succeeded": succeeded,
        "neighbours_delayed_s": {"p50": round(delays[len(delays) // 2], 1), "max": round(delays[-1], 1)},
        "poison_took_s": round(poison_took_s, 1),
        "dead_letters": len(letters),
        **broken(
            neighbours_succeed=succeeded == NEIGHBOURS,
            neighbours_are_served_in_time=delays[-1] <= PROMISED_S,
            poison_fails=_status(poison) is RunStatus.FAILED,
            only_poison_is_put_aside=len(letters) == 1 and b'"kills":true' in (letters[0].value or b""),
        ),
    }


def _status(response: InferenceResponse | None) -> RunStatus | None:
    return response.status if response is not None else None


async def _dead_letters(bootstrap: str) -> Sequence[ConsumerRecord]:
    """All there are."""
    consumer = AIOKafkaConsumer(DEAD_LETTERS, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        found = await consumer.getmany(timeout_ms=2_000)
    finally:
        await consumer.stop()
    return [record for records in found.values() for record in records]
