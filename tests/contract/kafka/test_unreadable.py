"""Records that the client library cannot decode, in the real broker's log."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from schemas.headers import X_UNREADABLE
from schemas.topics import Topic
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.stream import Stream
from services.chassis.kafka.types import ConsumerSettings, Outgoing, Record
from tests.contract.kafka.conftest import DEADLINE_S, Journal, collect
from tests.headers import NotText

pytestmark = pytest.mark.kafka

MEMBER = ConsumerSettings(group="readers", topics=("letters",))
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
POISON = b"poison"
PADDING = b"x" * 60
"""Enough to be compressed at all."""


@dataclass
class Letters:
    """What `letters` holds, by partition and offset."""

    connection: Connection
    client: AIOKafkaProducer
    values: dict[tuple[int, int], bytes] = field(default_factory=dict)

    async def append(self, partition: int, values: Sequence[bytes], codec: int = 0) -> None:
        """Appends one batch, and poison as it could only be sent by another client."""
        builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, 1 << 40)
        for number, value in enumerate(values):
            name = NotText() if value == POISON else "name"
            builder.append(number, None, b"key", value, [(name, PADDING), ("no value", None)])
        base = await self.send(partition, bytes(builder.build()))
        self.values.update({(partition, base + number): value for number, value in enumerate(values)})

    async def send(self, partition: int, batch: bytes) -> int:
        """Returns the offset of the first record."""
        topic = self.connection.topic("letters")
        request = ProduceRequest(None, -1, 10_000, [(topic, [(partition, batch)])])
        response = await self.client.client.send(self.client.client.get_random_node(), request)
        ((_, ((_, error, base, *_rest),)),) = response.topics
        assert error == 0
        return int(base)

    def expected(self) -> list[tuple[int, int, bytes | None]]:
        found = ((*place, None if value == POISON else value) for place, value in self.values.items())
        return sorted(found, key=itemgetter(0, 1))


@pytest.fixture
async def letters(connection: Connection) -> AsyncIterator[Letters]:
    """Poison first, last, alone and in the middle, in plain and in compressed batches, among other records."""
    async with Admin(connection) as admin:
        topics = [Topic("letters", "bytes", "any", partitions=3), Topic("out", "bytes", "any", partitions=1)]
        await admin.reconcile(topics, replication_factor=1)
    async with AIOKafkaProducer(**connection.client_settings()) as client:
        letters = Letters(connection, client)
        for partition, (first, second) in enumerate([(b"a", b"b"), (b"a", POISON), (POISON, b"b")]):
            await letters.append(partition, [first, second, b"c"])
            await letters.append(partition, [b"d", first, second], GZIP)
            await letters.append(partition, [second])
            await letters.append(partition, [b"e", b"f"])
        yield letters


def summary(records: Sequence[Record]) -> list[tuple[int, int, bytes | None]]:
    for record in records:
        assert (record.value is None) == (record.key is None) == (record.header(X_UNREADABLE) is not None)
    return sorted(((record.partition, record.offset, record.value) for record in records), key=itemgetter(0, 1))


@pytest.mark.parametrize("max_records", [1, 2, 500])
async def test_an_unreadable_record_is_yielded_once_and_so_is_every_other(letters: Letters, max_records: int) -> None:
    consumer = AioKafkaConsumer(letters.connection, MEMBER, Journal())
    await consumer.start()
    try:
        records: list[Record] = []
        async with asyncio.timeout(DEADLINE_S):
            while len(records) < len(letters.values):
                records += await consumer.poll(None, max_records=max_records, timeout_s=0.1)
        assert not await consumer.poll(None, max_records=max_records, timeout_s=0.3)
        assert await consumer.positions(consumer.assignment()) == dict.fromkeys(consumer.assignment(), 9)
    finally:
        await consumer.stop()
    assert summary(records) == letters.expected()
    for partition in range(3):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == sorted(offsets)
    unreadable = next(record for record in records if record.value is None)
    assert unreadable.header(X_UNREADABLE) == "a header's name is not UTF-8"
    stamps = sorted(record.timestamp for record in records if record.value is not None)
    assert stamps[0] - 60_000 < unreadable.timestamp < stamps[-1] + 60_000
    readable = next(record for record in records if record.value is not None)
    assert readable.headers == (("name", PADDING), ("no value", b""))


async def test_a_stream_dead_letters_what_is_unreadable_and_goes_on(letters: Letters) -> None:
    class Handler:
        async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
            return [
                (record, [Outgoing("out", record.value or b"%d@%d" % (record.partition, record.offset))])
                for record in records
            ]

    producer = AioKafkaProducer(letters.connection)
    await producer.start()
    reader = AioKafkaConsumer(letters.connection, ConsumerSettings(group=None, topics=("out",)), Journal())
    await reader.start()
    stream = Stream(lambda listener: AioKafkaConsumer(letters.connection, MEMBER, listener), producer, Handler())
    running = asyncio.create_task(stream.run())
    try:
        values = [record.value for record in await collect(reader, len(letters.values))]
        assert not await reader.poll(None, max_records=1, timeout_s=0.3)
    finally:
        await stream.stop()
        await running
        await reader.stop()
        await producer.stop()
    assert sorted(value or b"" for value in values) == sorted(
        b"%d@%d" % (partition, offset) if value is None else value for partition, offset, value in letters.expected()
    )


def packed(codec: int, size: int, header_count: int = 0) -> bytes:
    """A batch of one record whose value is so many zeros, with so many empty headers."""
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, 1 << 40)
    builder.append(0, None, b"key", bytes(size), [("", b"")] * header_count)
    return bytes(builder.build())


def misnumbered() -> bytes:
    """A batch of two records that say they are a million apart."""
    builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(1_000_000, None, b"key", PADDING, [])
    builder.append(1, None, b"key", PADDING, [])
    return bytes(builder.build())


async def test_bombs_that_the_broker_takes_are_unreadable_and_what_follows_is_read(letters: Letters) -> None:
    for codec in (GZIP, LZ4, ZSTD):
        await letters.append(0, [b"before"], codec)
        bomb = packed(codec, 40 << 20)
        assert len(bomb) < 1 << 20
        letters.values[0, await letters.send(0, bomb)] = POISON
    letters.values[0, await letters.send(0, packed(ZSTD, 1, header_count=1_000_000))] = POISON
    base = await letters.send(0, misnumbered())
    letters.values.update({(0, base): POISON, (0, base + 1): POISON})
    large = packed(SNAPPY, 19 << 20)
    letters.values[0, await letters.send(0, large)] = bytes(19 << 20)
    await letters.append(0, [b"after"])
    consumer = AioKafkaConsumer(letters.connection, MEMBER, Journal())
    await consumer.start()
    try:
        records = await collect(consumer, len(letters.values))
        assert not await consumer.poll(None, max_records=1, timeout_s=0.3)
    finally:
        await consumer.stop()
    assert summary(records) == letters.expected()
