"""Records that no service wrote: undecodable, invalid, huge, of unknown types, and results that were never earned."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from aiokafka import AIOKafkaProducer

from schemas.base import Json, Output
from schemas.config import DEFAULT_TENANT
from schemas.events import StepCompleted
from schemas.topics import EVENTS, JOINS, MAX_RECORD_BYTES, REQUESTS

PREFIX = "rubbish-"
"""Every key and request id of ours begins with it."""
HUGE_BYTES = MAX_RECORD_BYTES + 20_000
"""More than a service sends, and less than the broker refuses."""
UNKNOWN_TYPE = "step-suspended"


class Rubbish:
    """Writes it, as any client of the broker could."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def undecodable(self, topic: str) -> str:
        """Bytes that are no text; where they stand, as `topic/partition/offset`."""
        return await self._send(topic, b"\x00\xff rubbish", new_id())

    async def huge(self, topic: str) -> str:
        """More than a megabyte that is no JSON."""
        return await self._send(topic, b"x" * HUGE_BYTES, new_id())

    async def invalid(self, topic: str) -> str:
        """JSON with nothing in it that the topic's readers need."""
        value: Json = {"type": "run-started"} if topic == EVENTS else {"schema_version": 1}
        return await self._send(topic, value, new_id())

    async def invalid_request(self, request_id: str) -> str:
        """A request of which no more is right than that it has an id: it is refused, in a response."""
        return await self._send(REQUESTS, {"request_id": request_id, "pipeline": 7, "input": []}, request_id)

    async def huge_request(self, request_id: str) -> str:
        """More than a megabyte, of which the key is the id: it is refused likewise."""
        return await self._send(REQUESTS, b"x" * HUGE_BYTES, request_id)

    async def unknown_event(self, run_id: str) -> str:
        """As a newer version might write it."""
        event = {"type": UNKNOWN_TYPE, "schema_version": 1, "run_id": run_id, "tenant": DEFAULT_TENANT}
        return await self._send(EVENTS, event, run_id)

    async def forged(self, run_id: str, step: str, attempt: int) -> str:
        """A result of an attempt that nobody was asked for."""
        event = StepCompleted(
            run_id=run_id, tenant=DEFAULT_TENANT, step=step, attempt=attempt, model_class="quick", backend="local",
            output=Output(value={"nonce": "forged", "n": -1}),
        )  # fmt: skip
        return await self._send(EVENTS, event.model_dump(mode="json"), run_id)

    async def _send(self, topic: str, value: bytes | Mapping[str, Json], key: str) -> str:
        encoded = value if isinstance(value, bytes) else json.dumps(value).encode()
        found: Any = await self._producer.send_and_wait(topic, encoded, key.encode())
        return f"{found.topic}/{found.partition}/{found.offset}"


def producer(bootstrap: str) -> AIOKafkaProducer:
    """One that takes huge records."""
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap, client_id="rubbish", acks="all", enable_idempotence=True,
        max_request_size=2 * HUGE_BYTES,
    )  # fmt: skip


def new_id() -> str:
    """A request id by which ours are known."""
    return f"{PREFIX}{uuid4()}"


POISONED = (REQUESTS, EVENTS, JOINS)
"""Topics of the loop, but for those of the tasks."""
