"""The brokers the suite runs on, and what its tests look with."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import pytest

from schemas.topics import Topic
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.in_memory_offsets import InMemoryOffsetReader
from services.chassis.kafka.offsets import KafkaOffsetReader, OffsetReader
from services.chassis.kafka.types import Consumer, ConsumerSettings, KafkaError, Producer, Record, TopicPartition
from services.chassis.kafka.types import RebalanceListener as Listener

DEADLINE_S = 20.0

Part = TypeVar("Part", Producer, Consumer, KafkaOffsetReader)


class Broker(Protocol):
    """A broker under test. Whatever it started, it stops after the test."""

    async def create_topic(self, name: str, partitions: int) -> None: ...

    async def producer(self) -> Producer:
        """A producer, started."""

    async def consumer(self, settings: ConsumerSettings, listener: Listener | None = None) -> Consumer:
        """A consumer, started."""

    async def offset_reader(self) -> OffsetReader:
        """An offset reader, started."""


class Journal:
    """A listener that writes down what it is told, and may do more."""

    def __init__(self) -> None:
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.assigning: Callable[[frozenset[TopicPartition]], Awaitable[None]] | None = None
        self.revoking: Callable[[frozenset[TopicPartition]], Awaitable[None]] | None = None

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        if self.assigning:
            await self.assigning(partitions)
        self.events.append(("assigned", partitions))

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        if self.revoking:
            await self.revoking(partitions)
        self.events.append(("revoked", partitions))


class _Started:
    """What was started, to be stopped in reverse order."""

    def __init__(self) -> None:
        self._parts: list[Producer | Consumer | KafkaOffsetReader] = []

    async def start(self, part: Part) -> Part:
        await part.start()
        self._parts.append(part)
        return part

    async def stop(self) -> None:
        for part in reversed(self._parts):
            await part.stop()


class MemoryBroker(_Started):
    def __init__(self) -> None:
        super().__init__()
        self._kafka = InMemoryKafka(clock=lambda: time.time_ns() // 1_000_000)

    async def create_topic(self, name: str, partitions: int) -> None:
        self._kafka.create_topic(name, partitions)

    async def producer(self) -> Producer:
        return await self.start(self._kafka.producer())

    async def consumer(self, settings: ConsumerSettings, listener: Listener | None = None) -> Consumer:
        return await self.start(self._kafka.consumer(settings, listener or Journal()))

    async def offset_reader(self) -> OffsetReader:
        return InMemoryOffsetReader(self._kafka)


class RealBroker(_Started):
    def __init__(self, connection: Connection, admin: Admin) -> None:
        super().__init__()
        self._connection = connection
        self._admin = admin

    async def create_topic(self, name: str, partitions: int) -> None:
        await self._admin.reconcile([Topic(name, "bytes", "any", partitions=partitions)], replication_factor=1)

    async def producer(self) -> Producer:
        return await self.start(AioKafkaProducer(self._connection))

    async def consumer(self, settings: ConsumerSettings, listener: Listener | None = None) -> Consumer:
        return await self.start(AioKafkaConsumer(self._connection, settings, listener or Journal()))

    async def offset_reader(self) -> OffsetReader:
        async with KafkaOffsetReader(self._connection) as first:
            await _until_coordinated(first)
        return await self.start(KafkaOffsetReader(self._connection))


async def _until_coordinated(reader: OffsetReader) -> None:
    """A broker makes the topic of commits when it is first asked for one, and tells none before that is there."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await reader.read({"readers": ("letters",)})
            except KafkaError:
                await asyncio.sleep(0.1)
            else:
                return


@pytest.fixture
async def memory_broker() -> AsyncIterator[Broker]:
    broker = MemoryBroker()
    yield broker
    await broker.stop()


@pytest.fixture
async def real_broker(connection: Connection) -> AsyncIterator[Broker]:
    async with Admin(connection) as admin:
        broker = RealBroker(connection, admin)
        yield broker
        await broker.stop()


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each test runs on both."""
    found: Broker = request.getfixturevalue(f"{request.param}_broker")
    return found


async def collect(consumer: Consumer, count: int, partitions: Sequence[TopicPartition] | None = None) -> list[Record]:
    """Polls until there are `count` records."""
    records: list[Record] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(records) < count:
            records += await consumer.poll(partitions, max_records=count - len(records), timeout_s=0.1)
    return records


async def until(condition: Callable[[], bool], *members: Consumer) -> None:
    """Keeps the members polling (for nothing) until the condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await turn(*members)


async def turn(*members: Consumer) -> None:
    """One poll of each member, for nothing."""
    for member in members:
        await member.poll((), max_records=1, timeout_s=0.02)
    await asyncio.sleep(0.01)
