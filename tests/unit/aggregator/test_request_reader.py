"""Requests that cannot be read again because no broker answers: an error, so that the batch comes again."""

import asyncio

import pytest

from headway.plane.ports import free_ports
from schemas.events import RequestCoordinates
from services.aggregator.adapters import kafka_requests
from services.aggregator.adapters.kafka_requests import KafkaRequestReader
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import KafkaError

REQUEST = RequestCoordinates(topic="inference-requests", partition=0, offset=7, log_time=0)


async def test_no_broker_is_no_record_that_is_gone() -> None:
    with pytest.raises(KafkaError, match="which topics exist"):
        await KafkaRequestReader(Connection(f"127.0.0.1:{free_ports(1)[0]}")).fetch([REQUEST])


async def test_a_broker_that_says_nothing_is_no_record_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_requests, "FETCH_TIMEOUT_S", 0.3)
    port, over = free_ports(1)[0], asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", port):
        with pytest.raises(KafkaError, match="not read again within"):
            await KafkaRequestReader(Connection(f"127.0.0.1:{port}")).fetch([REQUEST])
        over.set()
