"""Reads topics as they stand: without a group, so that looking changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Target
from aiokafka.errors import KafkaError as ClientError
from aiokafka.structs import ConsumerRecord

from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import KafkaError, Record

CONNECT_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
STALL_TIMEOUT_S = 15.0
"""A broker that answers nothing for so long while records are missing is gone."""
POLL_MS = 200


class Logs:
    """One connection; read one thing at a time."""

    def __init__(self, client: AIOKafkaConsumer, broker: Connection) -> None:
        self._client = client
        self._broker = broker

    async def partitions(self, topic: str) -> list[int]:
        """Of a logical topic, ascending; empty when it does not exist."""
        # The client's own partitions_for_topic knows only the topics it has read before.
        cluster = await self._client._client.fetch_all_metadata()
        return sorted(cluster.partitions_for_topic(self._broker.topic(topic)) or ())

    async def spans(self, topic: str, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """The first offset and the end, by partition."""
        targets = [Target(self._broker.topic(topic), partition) for partition in partitions]
        if not targets:
            return {}
        # Of a topic it was not told of the client finds out only at a second try, 0.1 s later.
        await self._client._client.add_topic(self._broker.topic(topic))
        begins, ends = await self._client.beginning_offsets(targets), await self._client.end_offsets(targets)
        return {target.partition: (begins[target], ends[target]) for target in targets}

    async def read(
        self, topic: str, partitions: Collection[int], *, since: Mapping[int, int] | None = None, follow: bool = False
    ) -> AsyncIterator[Record]:
        """Records from `since` (default: the first kept) to the end as it is now; with `follow`, on and on."""
        spans = await self.spans(topic, partitions)
        starts = {number: max(begin, (since or {}).get(number, 0)) for number, (begin, _) in spans.items()}
        # Nothing is assigned in vain: the client hangs when it is stopped right after a change of its assignment.
        wanted = [number for number, (_, end) in spans.items() if follow or starts[number] < end]
        if not wanted:
            return
        targets = {Target(self._broker.topic(topic), number): number for number in wanted}
        self._client.assign(list(targets))
        for target, number in targets.items():
            self._client.seek(target, starts[number])
        unread = targets
        while unread or follow:
            async for record in self._poll(targets if follow else unread, stalled=not follow):
                if follow or record.offset < spans[record.partition][1]:
                    yield _record(topic, record)
            unread = await self._unread(unread, spans)
        # Whatever is asked next would stand in line behind a fetch of nothing.
        self._client.pause(*targets)

    async def _unread(self, targets: Mapping[Target, int], spans: Mapping[int, tuple[int, int]]) -> dict[Target, int]:
        """By position, not by record: a compacted topic ends in gaps."""
        return {
            target: partition
            for target, partition in targets.items()
            if await self._client.position(target) < spans[partition][1]
        }

    async def _poll(self, targets: Collection[Target], *, stalled: bool) -> AsyncIterator[ConsumerRecord]:
        batches = await self._client.getmany(*targets, timeout_ms=STALL_TIMEOUT_S * 1_000 if stalled else POLL_MS)
        if stalled and not batches:
            raise KafkaError(f"Kafka at {self._broker.bootstrap_servers} stopped answering")
        for batch in batches.values():
            for record in batch:
                yield record


@asynccontextmanager
async def open_logs(broker: Connection) -> AsyncIterator[Logs]:
    """Raises KafkaError when no broker answers within 10 s."""
    client = AIOKafkaConsumer(enable_auto_commit=False, fetch_max_wait_ms=100, **broker.client_settings())
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await client.start()
        yield Logs(client, broker)
    except (ClientError, TimeoutError) as error:
        raise KafkaError(f"cannot reach Kafka at {broker.bootstrap_servers}: {str(error) or 'no answer'}") from error
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await client.stop()


def _record(topic: str, record: ConsumerRecord) -> Record:
    return Record(
        topic, record.partition, record.offset, record.timestamp, record.key, record.value, tuple(record.headers)
    )
