"""The ingress topics, by FastStream: one handler, a batch at a time, acknowledged when all of it is in the log."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from aiokafka import ConsumerRecord
from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512

from schemas.topics import ORCHESTRATOR_REQUESTS_GROUP
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import Record

OnBatch = Callable[[Sequence[Record]], Awaitable[None]]
Records = tuple["ConsumerRecord[bytes, bytes]", ...]

POLL_MS = 5
"""FastStream sleeps this long after an empty poll of the same length: the delay of a request that finds it idle."""
MAX_BATCH = 500
_SASL = {"PLAIN": SASLPlaintext, "SCRAM-SHA-256": SASLScram256, "SCRAM-SHA-512": SASLScram512}


def build_ingress(
    connection: Connection, topics: Sequence[str], on_batch: OnBatch, fail: Callable[[BaseException], None]
) -> KafkaBroker:
    """A broker whose one subscriber hands batches of requests to `on_batch` and commits each when it returns.

    `fail` must end the process: FastStream would log the exception and commit past the batch with the next one.
    """
    broker = KafkaBroker(
        connection.bootstrap_servers.split(","),
        client_id=connection.client_id,
        security=_security(connection),
        consumer_only=True,
        allow_auto_create_topics=False,
        apply_types=False,
        logger=None,
    )
    subscriber = broker.subscriber(
        *(connection.topic(topic) for topic in topics),
        group_id=connection.group(ORCHESTRATOR_REQUESTS_GROUP),
        batch=True,
        batch_timeout_ms=POLL_MS,
        max_records=MAX_BATCH,
        ack_policy=AckPolicy.MANUAL,
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_500,
        rebalance_timeout_ms=10_000,
        fetch_max_wait_ms=250,  # a fetch ends with the first record: only idling gets cheaper
        parser=_parse,
        decoder=_decode,
        no_reply=True,
    )

    @subscriber
    async def on_requests(message: Any) -> None:
        try:
            await on_batch([_record(raw, connection) for raw in message.raw_message])
        except Exception as error:
            fail(error)
            await asyncio.Event().wait()  # the process is ending; returning would fetch and commit the next batch
        await message.ack()

    return broker


async def _parse(raw: Records, original: Callable[[Records], Awaitable[Any]]) -> Any:
    """Keeps FastStream's hands off headers and values: one header that is no UTF-8 would hide the whole batch."""
    message = await original(tuple(replace(record, headers=(), value=b"") for record in raw))
    message.raw_message = raw
    return message


async def _decode(message: Any) -> Any:
    return message


def _record(raw: "ConsumerRecord[bytes, bytes]", connection: Connection) -> Record:
    return Record(
        topic=raw.topic.removeprefix(connection.topic_prefix),
        partition=raw.partition,
        offset=raw.offset,
        timestamp=raw.timestamp,
        key=raw.key,
        value=raw.value,
        headers=tuple(raw.headers),
    )


def _security(connection: Connection) -> BaseSecurity | None:
    client = connection.client_settings()
    if connection.security_protocol == "PLAINTEXT":
        return None
    if "SASL" not in connection.security_protocol:
        return BaseSecurity(ssl_context=client["ssl_context"])
    sasl = _SASL[connection.sasl_mechanism]
    return sasl(connection.sasl_username or "", connection.sasl_password or "", ssl_context=client["ssl_context"])
