"""Reads requests again, by their coordinates, for the dead-letter topic."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping

from schemas.events import RequestCoordinates
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.existence import existing
from services.chassis.kafka.types import ConsumerSettings, KafkaError, Record, TopicPartition

FETCH_TIMEOUT_S = 10.0
POLL_S = 0.5
MAX_BATCH = 500

Offsets = Mapping[TopicPartition, Collection[int]]


class KafkaRequestReader:
    """Connects for each fetch: conflicts are rare, and all of a batch are read in one sweep.

    A consumer that is kept has a fetch in flight for its other partitions, which the broker holds for up to a
    second; whatever was sought meanwhile waits for its end. The join would stand still for as long.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def fetch(self, coordinates: Collection[RequestCoordinates]) -> dict[RequestCoordinates, Record | None]:
        """The records at these coordinates; None where there is none, any more or at all. Raises KafkaError."""
        wanted: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        for each in coordinates:
            wanted[TopicPartition(each.topic, each.partition)].add(each.offset)
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                found = await self._find(wanted)
        except TimeoutError:
            raise KafkaError(f"requests were not read again within {FETCH_TIMEOUT_S:.0f} s") from None
        return {each: found.get((TopicPartition(each.topic, each.partition), each.offset)) for each in coordinates}

    async def _find(self, wanted: Offsets) -> dict[tuple[TopicPartition, int], Record]:
        """Topics and partitions that do not exist are not waited for: an event can name whatever it likes."""
        by_topic: defaultdict[str, dict[TopicPartition, Collection[int]]] = defaultdict(dict)
        for tp in await existing(self._connection, wanted.keys()):
            by_topic[tp.topic][tp] = wanted[tp]
        found = [record for topic, offsets in by_topic.items() for record in await self._read(topic, offsets)]
        return {(record.tp, record.offset): record for record in found}

    async def _read(self, topic: str, offsets: Offsets) -> list[Record]:
        sweep = _Sweep(self._connection, topic, offsets)
        try:
            await sweep.consumer.start()
            return await sweep.run()
        finally:
            await sweep.consumer.stop()


class _Sweep:
    """From the first to the last wanted record of every partition, jumping over what is far from any."""

    def __init__(self, connection: Connection, topic: str, offsets: Offsets) -> None:
        self.consumer = AioKafkaConsumer(connection, ConsumerSettings(group=None, topics=(topic,)), self)
        self._wanted = offsets
        self._left = {tp: sorted(each) for tp, each in offsets.items()}
        """All of them until it is known what is there: what fails before that must not look like the end."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Stands at the first wanted record of each partition before anything is fetched; at the end of others."""
        begins = await self.consumer.beginning_offsets(self._wanted)
        for tp, end in (await self.consumer.end_offsets(partitions)).items():
            left = [offset for offset in self._left.get(tp, ()) if begins[tp] <= offset < end]
            self._left[tp] = left
            self.consumer.seek(tp, left[0] if left else end)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing is held."""

    async def run(self) -> list[Record]:
        """Those that are still there."""
        found: list[Record] = []
        while left := [tp for tp, offsets in self._left.items() if offsets]:
            records = await self.consumer.poll(left, max_records=MAX_BATCH, timeout_s=POLL_S)
            found += [record for record in records if record.offset in self._wanted[record.tp]]
            self._pass(await self.consumer.positions(left))
        return found

    def _pass(self, reached: Mapping[TopicPartition, int]) -> None:
        """By positions: an offset without a record, like the end of a transaction, is passed but never comes."""
        for tp, position in reached.items():
            self._left[tp] = [offset for offset in self._left[tp] if offset >= position]
            if self._left[tp] and self._left[tp][0] > position + MAX_BATCH:
                self.consumer.seek(tp, self._left[tp][0])
