"""Reads a topic outside any group: from its start or its last records to its end, and on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from services.chassis.kafka.types import Consumer, KafkaError, RebalanceListener, Record, TopicPartition
from services.chassis.logging import log

MAX_BATCH = 500
READ_POLL_S = 0.2
READ_TIMEOUT_S = 30.0
AGAIN_S = 2.0


class LogReader:
    """Every partition of one topic. It commits nothing, and remembers nothing between two lives."""

    def __init__(self, consumer_factory: Callable[[RebalanceListener], Consumer], *, tail: int | None = None) -> None:
        """`tail`: begin at most so many records before the end of each partition; None: at the earliest one."""
        self._consumer = consumer_factory(self)
        self._tail = tail

    async def start(self) -> None:
        """Raises KafkaError when there is no broker, or no such topic."""
        await self._consumer.start()
        if self._tail is not None:
            partitions = self._consumer.assignment()
            begin = await self._consumer.beginning_offsets(partitions)
            end = await self._consumer.end_offsets(partitions)
            for tp in partitions:
                self._consumer.seek(tp, max(begin[tp], end[tp] - self._tail))

    async def stop(self) -> None:
        """Bounded."""
        await self._consumer.stop()

    async def read_to_end(self) -> Sequence[Record]:
        """Every record up to the ends as they are now. Raises KafkaError when that takes longer than 30 s."""
        return [record async for records in self.up_to_end() for record in records]

    async def up_to_end(self) -> AsyncIterator[Sequence[Record]]:
        """The same bit by bit, for whom all at once would be too much."""
        give_up_at = asyncio.get_running_loop().time() + READ_TIMEOUT_S
        partitions = self._consumer.assignment()
        end = await self._consumer.end_offsets(partitions)
        while True:
            at = await self._consumer.positions(partitions)
            if all(at.get(tp, 0) >= end[tp] for tp in partitions):
                return
            if asyncio.get_running_loop().time() > give_up_at:
                raise KafkaError(f"the end of {min(partitions).topic} was not reached within {READ_TIMEOUT_S:.0f} s")
            yield await self._consumer.poll(None, max_records=MAX_BATCH, timeout_s=READ_POLL_S)

    async def follow(self, timeout_s: float) -> Sequence[Record]:
        """The next records; empty when there are none within the time-out."""
        return await self._consumer.poll(None, max_records=MAX_BATCH, timeout_s=timeout_s)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing is held."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Positions are sought by `start`."""


class EnduringLog:
    """Goes on with another reader when one fails, for as long as it takes: for whom it is worse to end than to hear
    nothing for a while. Records may come again, and with a `tail` some may be missed.
    """

    def __init__(self, reader: Callable[[], LogReader], again_s: float = AGAIN_S) -> None:
        """`reader` makes one that is not started; after a failure the next is tried every `again_s`."""
        self._make = reader
        self._reader = reader()
        self._again_s = again_s
        self._has_failed = False

    async def start(self) -> None:
        """Raises KafkaError when there is no broker, or no such topic."""
        await self._reader.start()

    async def stop(self) -> None:
        """Bounded."""
        await self._reader.stop()

    async def read_to_end(self) -> Sequence[Record]:
        """Every record up to the ends as they are now. Raises KafkaError when that takes longer than 30 s."""
        return await self._reader.read_to_end()

    async def follow(self, timeout_s: float) -> Sequence[Record]:
        """The next records; empty when there are none within the time-out, and after a failure."""
        try:
            if self._has_failed:
                await self._renew()
            return await self._reader.follow(timeout_s)
        except KafkaError as error:
            self._has_failed = True
            log.warning("log_opened_anew", exc_info=error)
            await asyncio.sleep(self._again_s)
            return ()

    async def _renew(self) -> None:
        await self._reader.stop()
        self._reader = self._make()
        await self._reader.start()
        self._has_failed = False
