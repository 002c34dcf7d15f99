"""Reads requests again, by their coordinates, for the dead-letter topic."""

import asyncio
from collections import defaultdict
from collections.abc import Collection

from schemas.events import RequestCoordinates
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import ConsumerSettings, KafkaError, Record, TopicPartition

FETCH_TIMEOUT_S = 10.0
POLL_S = 0.5
MAX_BATCH = 500


class KafkaRequestReader:
    """One group-less consumer for each ingress topic that ever needed it: conflicts are rare, and come in bursts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._consumers: dict[str, AioKafkaConsumer] = {}

    async def fetch(self, coordinates: Collection[RequestCoordinates]) -> dict[RequestCoordinates, Record | None]:
        """The records at these coordinates; None for one that is no longer retained. Raises KafkaError."""
        wanted: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        for each in coordinates:
            wanted[TopicPartition(each.topic, each.partition)].add(each.offset)
        found: dict[tuple[TopicPartition, int], Record] = {}
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                for tp, offsets in wanted.items():
                    found.update({(tp, record.offset): record for record in await self._read(tp, offsets)})
        except TimeoutError:
            raise KafkaError(f"requests were not read again within {FETCH_TIMEOUT_S:.0f} s") from None
        return {each: found.get((TopicPartition(each.topic, each.partition), each.offset)) for each in coordinates}

    async def stop(self) -> None:
        """Closes the consumers."""
        for consumer in self._consumers.values():
            await consumer.stop()

    async def _read(self, tp: TopicPartition, offsets: set[int]) -> list[Record]:
        """In one sweep from the first to the last, jumping over what is far from any."""
        consumer = await self._consumer(tp.topic)
        begin = (await consumer.beginning_offsets([tp]))[tp]
        left = sorted(offset for offset in offsets if offset >= begin)
        found: list[Record] = []
        while left:
            consumer.seek(tp, left[0])
            records = await consumer.poll([tp], max_records=MAX_BATCH, timeout_s=POLL_S)
            found += [record for record in records if record.offset in offsets]
            if records:
                left = [offset for offset in left if offset > records[-1].offset]
        return found

    async def _consumer(self, topic: str) -> AioKafkaConsumer:
        if topic not in self._consumers:
            settings = ConsumerSettings(group=None, topics=(topic,))
            consumer = AioKafkaConsumer(self._connection, settings, _Silent())
            await consumer.start()
            self._consumers[topic] = consumer
        return self._consumers[topic]


class _Silent:
    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing is held."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Every fetch seeks for itself."""
