"""Where groups stand in their topics, and when a record was appended. Looking joins no group and reads no value.

The library's own ways take a failing answer for an empty one (a coordinator that is still loading knows no commits),
or wait for all partitions when one has no leader. Here what cannot be read is left out, and the rest is told.
"""

import asyncio
import struct
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, Self

from aiokafka import TopicPartition as Target
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError as ClientError
from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import KafkaError, TopicPartition

START_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 2.0
STOP_TIMEOUT_S = 3.0
LOOK_AGAIN_S = 10.0
"""How old the knowledge of partitions, their leaders and their beginnings may be."""
MAX_STAMPS = 32
"""Asked for together: each costs a batch of records, at most a megabyte."""

EARLIEST, LATEST = -2, -1
GROUP_COORDINATOR = 0
ONE_BATCH = 1
"""Bytes to fetch at most: the broker gives a whole batch for them, but never two."""
BATCH_HEADER = struct.Struct(">8x4x4xb4xh4x8xq")
"""Of a batch: its format, its attributes and its highest timestamp."""
BATCH_FORMAT, LOG_APPEND_TIME = 2, 0x08


class Offsets(NamedTuple):
    """Where a group stands in a partition."""

    begin: int
    """Of the oldest record there is; up to 10 s old."""
    committed: int | None
    """The next record to do; None for a group without a commit there."""
    end: int
    """Of the record that will be appended next."""


Standings = Mapping[str, Mapping[TopicPartition, Offsets | None]]
"""By group; None for a partition that does not answer."""


class OffsetReader(Protocol):
    """Looks at groups and topics, by their logical names."""

    async def read(self, groups: Mapping[str, Collection[str]]) -> Standings:
        """Of each group in those of its topics that exist. One whose commits cannot be read is left out.

        Raises KafkaError when nothing can be read.
        """

    async def stamps(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """When the record at each position was appended, in milliseconds of the broker's clock.

        Left out: what cannot be read soon, or is not there.
        """


@dataclass(frozen=True, slots=True)
class _Layout:
    """The partitions of some topics, as they were a moment ago."""

    topics: frozenset[str]
    seen_at: float
    partitions: Mapping[str, Collection[TopicPartition]]
    leaders: Mapping[TopicPartition, int]
    begins: Mapping[TopicPartition, int]


class KafkaOffsetReader:
    """One connection to each broker; an asynchronous context manager. One call at a time."""

    def __init__(self, connection: Connection, timeout_s: float = READ_TIMEOUT_S) -> None:
        """`timeout_s`: of a read; stamps have half of it."""
        self._connection = connection
        self._timeout_s = timeout_s
        self._layout: _Layout | None = None
        self._coordinators: dict[str, int] = {}
        self._client: Any = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Raises KafkaError when no broker answers within 30 s, or at once if none is there and nobody is patient."""
        await self._connection.until_reachable()
        self._client = AIOKafkaClient(**self._connection.client_settings())
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._client.bootstrap()
        except (ClientError, TimeoutError) as error:
            await self.stop()
            raise KafkaError(f"cannot reach Kafka at {self._connection.bootstrap_servers}: {error!r}") from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Bounded."""
        closing = asyncio.create_task(self._client.close())
        await asyncio.wait({closing}, timeout=STOP_TIMEOUT_S)

    async def read(self, groups: Mapping[str, Collection[str]]) -> Standings:
        async with self._answering():
            layout = await self._look(frozenset(topic for topics in groups.values() for topic in topics))
            wanted = {group: _partitions(layout, topics) for group, topics in groups.items()}
            # Commits come first: an end read later is not below them.
            commits = await asyncio.gather(*(self._commits(group, wanted[group]) for group in wanted))
            ends = await self._list(layout.leaders, LATEST)
        if len(ends) < len(layout.leaders):
            self._layout = None
        found = {
            group: {
                tp: Offsets(layout.begins[tp], committed.get(tp), ends[tp])
                if tp in ends and tp in layout.begins
                else None
                for tp in wanted[group]
            }
            for group, committed in zip(wanted, commits, strict=True)
            if committed is not None
        }
        if not any(any(of_group.values()) for of_group in found.values()):
            raise KafkaError(f"Kafka at {self._connection.bootstrap_servers} tells no offsets")
        return found

    async def stamps(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        leaders = self._layout.leaders if self._layout else {}
        asked = dict(islice(((tp, offset) for tp, offset in positions.items() if tp in leaders), MAX_STAMPS))
        waiting = {tp: asyncio.create_task(self._stamp(leaders[tp], tp, offset)) for tp, offset in asked.items()}
        if not waiting:
            return {}
        try:
            await asyncio.wait(waiting.values(), timeout=self._timeout_s / 2)
        finally:
            for task in waiting.values():
                task.cancel()
        stamped = {tp: task.result() for tp, task in waiting.items() if task.done() and not task.cancelled()}
        return {tp: stamp for tp, stamp in stamped.items() if stamp is not None}

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """The layout is forgotten after any failure: leaders may have moved."""
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except (ClientError, TimeoutError) as error:
            self._layout = None
            raise KafkaError(f"Kafka at {self._connection.bootstrap_servers}: {error!r}") from error

    async def _look(self, topics: frozenset[str]) -> _Layout:
        now, layout = time.monotonic(), self._layout
        if layout is not None and topics == layout.topics and now - layout.seen_at < LOOK_AGAIN_S:
            return layout
        # All of them: to ask for a topic by its name could create it.
        cluster = await self._client.fetch_all_metadata()
        partitions = {
            topic: [TopicPartition(topic, number) for number in sorted(self._numbers(cluster, topic))]
            for topic in topics
        }
        every = [tp for of_topic in partitions.values() for tp in of_topic]
        led = {tp: cluster.leader_for_partition(self._target(tp)) for tp in every}
        leaders = {tp: leader for tp, leader in led.items() if leader is not None and leader >= 0}
        begins = await self._list(leaders, EARLIEST)
        layout = _Layout(topics, now, partitions, leaders, begins)
        self._layout = layout if len(begins) == len(every) else None
        return layout

    def _numbers(self, cluster: Any, topic: str) -> Iterable[int]:
        return cluster.partitions_for_topic(self._connection.topic(topic)) or ()

    async def _commits(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int] | None:
        """Only where there are some; None when the group's coordinator does not tell."""
        if not partitions:
            return {}
        try:
            if group not in self._coordinators:
                name = self._connection.group(group)
                self._coordinators[group] = await self._client.coordinator_lookup(GROUP_COORDINATOR, name)
            request = OffsetFetchRequest(
                self._connection.group(group), self._by_topic((tp, None) for tp in partitions)
            )
            response = await self._client.send(self._coordinators[group], request)
            _require(response.error_code)
            return self._committed(response, partitions)
        except ClientError:
            self._coordinators.pop(group, None)
            return None

    def _committed(self, response: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = {}
        for topic, told in response.topics:
            for number, offset, _, code in told:
                _require(code)
                found[Target(topic, number)] = offset
        by_target = {self._target(tp): tp for tp in partitions}
        return {by_target[target]: offset for target, offset in found.items() if offset >= 0}

    async def _list(self, leaders: Mapping[TopicPartition, int], which: int) -> dict[TopicPartition, int]:
        """The earliest or latest offset of those that answer."""
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp, leader in leaders.items():
            led[leader].append(tp)
        requests = (
            self._client.send(leader, OffsetRequest(-1, 0, self._by_topic((tp, which) for tp in partitions)))
            for leader, partitions in led.items()
        )
        by_target = {self._target(tp): tp for tp in leaders}
        found = {}
        for topic, told in await _topics(requests):
            for number, code, _, offset, *_ in told:
                if not code:
                    found[by_target[Target(topic, number)]] = offset
        return found

    async def _stamp(self, leader: int, tp: TopicPartition, offset: int) -> int | None:
        wanted = [(self._connection.topic(tp.topic), [(tp.partition, offset, ONE_BATCH)])]
        try:
            response = await self._client.send(leader, FetchRequest(0, 0, ONE_BATCH, 0, wanted))
        except ClientError:
            return None
        batches = [batch for _, told in response.topics for _, code, *_, batch in told if batch and not code]
        return _stamp_of(batches[0]) if batches else None

    def _by_topic(self, wanted: Iterable[tuple[TopicPartition, int | None]]) -> list[tuple[str, list[Any]]]:
        """As requests want it; partitions alone where there is nothing more to say of them."""
        found: dict[str, list[Any]] = defaultdict(list)
        for tp, more in wanted:
            found[self._connection.topic(tp.topic)].append(tp.partition if more is None else (tp.partition, more))
        return list(found.items())

    def _target(self, tp: TopicPartition) -> Target:
        return Target(self._connection.topic(tp.topic), tp.partition)


def _partitions(layout: _Layout, topics: Iterable[str]) -> list[TopicPartition]:
    return [tp for topic in topics for tp in layout.partitions[topic]]


async def _topics(requests: Iterable[Awaitable[Any]]) -> list[Any]:
    """Of all answers; a broker that does not give one is left out."""
    answers = await asyncio.gather(*requests, return_exceptions=True)
    found: list[Any] = []
    for answer in answers:
        if isinstance(answer, ClientError):
            continue
        if isinstance(answer, BaseException):
            raise answer
        found.extend(answer.topics)
    return found


def _stamp_of(batch: bytes) -> int | None:
    """The broker's stamp of a batch: all of its records have the same one.

    None for a topic whose records keep the stamps of those who sent them.
    """
    if len(batch) < BATCH_HEADER.size:
        return None
    form, attributes, highest = BATCH_HEADER.unpack_from(batch)
    return int(highest) if form == BATCH_FORMAT and attributes & LOG_APPEND_TIME else None


def _require(code: int) -> None:
    if code:
        raise for_code(code)
