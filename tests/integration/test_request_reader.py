"""Requests read again from the real broker: all of a batch in one sweep, for the join waits for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from schemas.events import RequestCoordinates
from services.aggregator.adapters.kafka_requests import KafkaRequestReader
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import KafkaError, Outgoing, Record

pytestmark = pytest.mark.kafka

TOPIC = "inference-requests"
PARTITIONS, RECORDS = 12, 700
WITHIN_S = 5.0
"""One partition after another, each waiting for the broker's longest fetch, takes more than twice as long."""


@pytest.fixture
async def reader(connection: Connection) -> AsyncIterator[KafkaRequestReader]:
    """Of a topic whose every partition holds `<partition>/<offset>` in each record."""
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(connection.topic(TOPIC), PARTITIONS, 1)])
    producer = AioKafkaProducer(connection)
    await producer.start()
    try:
        everywhere = [(partition, offset) for offset in range(RECORDS) for partition in range(PARTITIONS)]
        await producer.send_all([Outgoing(TOPIC, b"%d/%d" % place, None, (), place[0]) for place in everywhere])
        yield KafkaRequestReader(connection)
    finally:
        await producer.stop()
        await admin.delete_topics([connection.topic(TOPIC)])
        await admin.close()


def at(partition: int, offset: int, topic: str = TOPIC) -> RequestCoordinates:
    return RequestCoordinates(topic=topic, partition=partition, offset=offset, log_time=0)


def value(record: Record | None) -> bytes | None:
    return None if record is None else record.value


async def test_requests_of_every_partition_are_read_in_one_sweep(reader: KafkaRequestReader) -> None:
    wanted = [at(partition, offset) for partition in range(PARTITIONS) for offset in (0, partition, RECORDS - 1)]
    async with asyncio.timeout(WITHIN_S):
        found = await reader.fetch(wanted)
    assert {each: value(record) for each, record in found.items()} == {
        each: b"%d/%d" % (each.partition, each.offset) for each in wanted
    }


async def test_what_is_not_there_is_none_and_holds_up_nothing(reader: KafkaRequestReader) -> None:
    async with asyncio.timeout(WITHIN_S):
        found = await reader.fetch([at(3, 7), at(3, RECORDS), at(4, RECORDS + 5)])
    assert [value(record) for record in found.values()] == [b"3/7", None, None]


async def test_what_names_no_topic_or_partition_that_exists_is_none_and_holds_up_nothing(
    reader: KafkaRequestReader,
) -> None:
    forged = [at(0, 0, "deleted-requests"), at(PARTITIONS, 0), at(0, 0, "no topic's name / at all")]
    async with asyncio.timeout(WITHIN_S):
        found = await reader.fetch([at(3, 7), *forged])
    assert [value(record) for record in found.values()] == [b"3/7", None, None, None]


async def test_an_offset_without_a_record_is_none_and_holds_up_nothing(
    reader: KafkaRequestReader, connection: Connection
) -> None:
    """The end of a transaction takes an offset, after which nothing comes."""
    servers, topic = connection.bootstrap_servers, connection.topic(TOPIC)
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) as client, client.transaction():
        await client.send_and_wait(topic, b"in a transaction", partition=5)
    async with asyncio.timeout(WITHIN_S):
        found = await reader.fetch([at(5, RECORDS), at(5, RECORDS + 1)])
    assert [value(record) for record in found.values()] == [b"in a transaction", None]


async def test_a_broker_that_fails_in_between_is_no_record_that_is_gone(
    reader: KafkaRequestReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise KafkaError("the broker does not answer")

    monkeypatch.setattr(AioKafkaConsumer, "beginning_offsets", fail)
    with pytest.raises(KafkaError, match="does not answer"):
        await reader.fetch([at(3, 7)])
