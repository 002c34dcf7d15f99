"""The port over aiokafka 0.14: every trap of the library that was met is handled here, and nowhere else."""

import asyncio
import contextlib
import math
import random
from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as Target
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
)
from aiokafka.errors import KafkaError as ClientError
from aiokafka.structs import ConsumerRecord, OffsetAndMetadata, RecordMetadata

from services.chassis.kafka import closed_connections, unreadable
from services.chassis.kafka.assignor import lane_assignor
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.records import partition_of, require_metadata, require_size
from services.chassis.kafka.types import (
    Appended,
    Commit,
    ConsumerSettings,
    KafkaError,
    Outgoing,
    ProducerDeadError,
    RebalanceListener,
    Record,
    TopicPartition,
)

unreadable.install()
closed_connections.install()

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 3.0
COMMIT_TIMEOUT_S = 5.0
QUERY_TIMEOUT_S = 10.0
CONSUMER_REQUEST_TIMEOUT_S = 15.0
"""Longer than a rebalance, through which the broker holds a join request."""
PRODUCER_REQUEST_TIMEOUT_S = 10.0
METADATA_RETRY_S = 0.25
MAX_DENIALS = 40
"""A topic may be just being created or have grown, and a broker that restarts does not know its topics at once."""
MAX_FETCH_BYTES = 16 << 20
MAX_REQUEST_BYTES = 4 << 20
BATCH_BYTES = 128 << 10
PREFETCH_BACKOFF_S = 0.01
"""How long polled-for records hold back the next fetch. The client's 100 ms let a trickle in a low lane hold back
the high ones. With none at all a fetch leaves out the partition just polled, whose next record then waits until that
fetch ends: measured, 700 ms more for the six records of a run, which stand in one partition."""
BUSY_FETCH_WAIT_S, IDLE_FETCH_WAIT_S = 0.05, 1.0
"""How long the broker holds a fetch when there is nothing. A record that arrives ends it at once, but a partition
that the fetch left out, because what came before was still to be polled, waits until it ends. So a member takes the
long wait only while nothing comes; a reader outside any group, which nobody waits for, always does.

Measured on two busy cores: six records in a row in one partition, p50/p95 in ms, by a handler that takes no time
and by one that takes 20 ms of four such rows at once; and what an idle consumer costs here and in the broker.

======  =========  =============  ====================
wait    fast       slow           idle, % of a core
======  =========  =============  ====================
50 ms   16 / 28    267 / 325      2.2 + 3.3
250 ms  17 / 29    265 / 400      0.8 + 0.7
500 ms  17 / 46    273 / 400      0.6 + 0.0
======  =========  =============  ====================
"""
IDLE_AFTER_S = 2.0

NOTHING = Target("", 0)
"""Never assigned: `getmany` of it fetches nothing, but counts as a poll. Of no partition, it means all of them."""


class AioKafkaConsumer:
    """A group member. Start and use it in one event loop."""

    def __init__(self, connection: Connection, settings: ConsumerSettings, listener: RebalanceListener) -> None:
        self._connection = connection
        self._settings = settings
        self._listener = listener
        self._logical = {connection.topic(topic): topic for topic in settings.topics}
        self._owned: frozenset[TopicPartition] = frozenset()
        self._all: list[Target] = []
        self._generation = 0
        self._busy_at = asyncio.get_running_loop().time()
        self._ready = asyncio.Event()
        self._commits: set[asyncio.Timeout] = set()
        self._failure: Exception | None = None
        self._client: Any = None

    async def start(self) -> None:
        """Joins the group. Raises KafkaError after 30 s without a broker, a topic or an assignment."""
        await self._connection.until_reachable()
        self._client = self._connect()
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._client.start()
        except (ClientError, TimeoutError) as error:
            await self.stop()
            topics, servers = ", ".join(self._logical), self._connection.bootstrap_servers
            if isinstance(error, UnknownTopicOrPartitionError):
                raise KafkaError(f"one of {topics} does not exist: run `headway topics apply`") from error
            reason = str(error) or f"not within {START_TIMEOUT_S:.0f} s"
            raise KafkaError(f"cannot consume {topics} from {servers}: {reason}") from error
        except BaseException:
            await self.stop()
            raise
        self._client._fetcher._prefetch_backoff = PREFETCH_BACKOFF_S
        _watch_metadata(self._client._client, self._on_metadata_lost)
        if self._settings.group is None:
            await self._on_assigned(self._client.assignment())

    async def stop(self) -> None:
        self._ready.clear()
        self._abandon_commits()
        if self._client and not await _ends_well(self._client.stop()):
            await self._tear_down()

    async def poll(
        self, partitions: Collection[TopicPartition] | None, *, max_records: int, timeout_s: float
    ) -> Sequence[Record]:
        if self._failure:
            raise self._failure
        if not self._ready.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ready.wait(), timeout_s)
            return ()
        targets = self._all if partitions is None else self._targets(self._owned.intersection(partitions))
        if not targets or not max_records:
            targets, max_records = [NOTHING], 1
        try:
            # A rebalance drops what was prefetched, and partitions are paused until the listener has been told:
            # whatever this returns belongs to the current assignment.
            batches = await self._client.getmany(*targets, timeout_ms=timeout_s * 1_000, max_records=max_records)
        except ClientError as error:
            raise KafkaError(f"cannot poll: {error!r}") from error
        self._pace(busy=bool(batches))
        return [self._record(record) for batch in batches.values() for record in batch]

    def assignment(self) -> frozenset[TopicPartition]:
        return self._owned

    def seek(self, partition: TopicPartition, offset: int) -> None:
        try:
            self._client.seek(self._target(partition), offset)
        except ClientError as error:
            raise KafkaError(f"cannot seek: {partition} is not assigned") from error

    async def commit(self, offsets: Mapping[TopicPartition, Commit]) -> bool:
        for commit in offsets.values():
            require_metadata(commit.metadata)
        if self._settings.group is None:
            raise KafkaError("a reader outside any group cannot commit")
        if not offsets or not self._is_member(offsets):
            return not offsets
        wanted = {self._target(tp): OffsetAndMetadata(c.offset, c.metadata) for tp, c in offsets.items()}
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S) as deadline:
                self._commits.add(deadline)
                await self._client.commit(wanted)
        except (TimeoutError, CommitFailedError, IllegalStateError):
            return False
        except ClientError as error:
            raise KafkaError(f"cannot commit: {error!r}") from error
        finally:
            self._commits.discard(deadline)
        return True

    async def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Commit]:
        if self._settings.group is None:
            return {}
        # The client's own committed() drops the metadata.
        fetched = await _query(self._client._coordinator.fetch_committed_offsets(self._targets(partitions)))
        return {self._source(target): Commit(*found) for target, found in fetched.items()}

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = {}
        for tp in self._owned.intersection(partitions):
            with contextlib.suppress(KafkaError):
                found[tp] = await _query(self._client.position(self._target(tp)))
        return found

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._by_source(await _query(self._client.beginning_offsets(self._targets(partitions))))

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._by_source(await _query(self._client.end_offsets(self._targets(partitions))))

    def _connect(self) -> Any:
        settings, group = self._settings, self._settings.group
        lanes = {self._connection.topic(topic): lanes for topic, lanes in settings.lanes.items()}
        client = AIOKafkaConsumer(
            **self._connection.client_settings(),
            group_id=None if group is None else self._connection.group(group),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=_ms(settings.session_timeout_s),
            heartbeat_interval_ms=_ms(settings.heartbeat_s),
            rebalance_timeout_ms=_ms(settings.rebalance_timeout_s),
            max_poll_interval_ms=_ms(settings.max_poll_interval_s),
            fetch_max_wait_ms=_ms(BUSY_FETCH_WAIT_S),
            fetch_max_bytes=MAX_FETCH_BYTES,
            request_timeout_ms=_ms(CONSUMER_REQUEST_TIMEOUT_S),
            partition_assignment_strategy=[lane_assignor(lanes)],
        )
        client.subscribe(list(self._logical), listener=_Rebalances(self._on_revoked, self._on_assigned))
        return client

    async def _on_assigned(self, targets: Collection[Target]) -> None:
        # The client fetches from now on: nothing may be polled before the listener has sought its positions.
        self._client.pause(*targets)
        self._generation = self._current_generation()
        self._owned, self._all = frozenset(map(self._source, targets)), list(targets)
        if await self._tell(self._listener.on_assigned(self._owned)):
            self._client.resume(*targets)
            self._ready.set()

    async def _on_revoked(self, _: Collection[Target]) -> None:
        self._ready.clear()
        if self._owned:
            await self._tell(self._listener.on_revoked(self._owned))
        # From here until the next assignment a commit could land in a generation that gave the partition to another.
        self._owned = frozenset()
        self._abandon_commits()

    async def _tell(self, callback: Awaitable[None]) -> bool:
        """aiokafka swallows what a listener raises: the next poll raises it."""
        try:
            await callback
        except Exception as error:
            self._failure = error
            self._ready.set()
        return self._failure is None

    def _on_metadata_lost(self, error: BaseException) -> None:
        """The client would wait for its coordinator for ever, and fetch on while the group goes on without it."""
        self._failure = KafkaError(f"the client learns of no leaders any more: {error!r}")
        self._ready.set()

    def _is_member(self, offsets: Mapping[TopicPartition, Commit]) -> bool:
        """The client sends the generation it has now, not the one in which the records were polled."""
        return self._owned.issuperset(offsets) and self._current_generation() == self._generation

    def _current_generation(self) -> int:
        return 0 if self._settings.group is None else int(self._client._coordinator.generation)

    def _abandon_commits(self) -> None:
        """The client retries a commit, with whatever generation it has by then."""
        now = asyncio.get_running_loop().time()
        for deadline in self._commits:
            deadline.reschedule(now)

    async def _tear_down(self) -> None:
        """What an orderly stop could not do because the broker does not answer."""
        coordinator = self._client._coordinator
        for name in ("_coordination_task", "_heartbeat_task", "_commit_refresh_task"):
            if task := getattr(coordinator, name, None):
                task.cancel()
        await _ends_well(self._client._client.close())
        if self._client._fetcher:
            await _ends_well(self._client._fetcher.close())

    def _pace(self, *, busy: bool) -> None:
        now = asyncio.get_running_loop().time()
        if busy:
            self._busy_at = now
        idle = self._settings.group is None or now - self._busy_at > IDLE_AFTER_S
        self._client._fetcher._fetch_max_wait_ms = _ms(IDLE_FETCH_WAIT_S if idle else BUSY_FETCH_WAIT_S)

    def _target(self, tp: TopicPartition) -> Target:
        return Target(self._connection.topic(tp.topic), tp.partition)

    def _targets(self, partitions: Collection[TopicPartition]) -> list[Target]:
        return [self._target(tp) for tp in partitions]

    def _source(self, target: Target) -> TopicPartition:
        return TopicPartition(self._logical[target.topic], target.partition)

    def _by_source(self, offsets: Mapping[Target, int]) -> dict[TopicPartition, int]:
        return {self._source(target): offset for target, offset in offsets.items()}

    def _record(self, record: ConsumerRecord) -> Record:
        return Record(
            self._logical[record.topic],
            record.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            record.headers,
        )


class AioKafkaProducer:
    """acks=all, idempotent, one an event loop. A linger of 0 still batches what is sent in one turn of the loop."""

    def __init__(self, connection: Connection, *, linger_s: float = 0.0) -> None:
        self._connection = connection
        self._linger_s = linger_s
        self._loop = asyncio.get_running_loop()
        self._dead: Future[None] = self._loop.create_future()
        self._failure: KafkaError | None = None
        """Why nothing can be sent any more."""
        self._client: Any = None

    @property
    def dead(self) -> "Future[None]":
        return self._dead

    async def start(self) -> None:
        """Raises KafkaError when no broker answers within 30 s, or at once if none is there and nobody is patient."""
        await self._connection.until_reachable()
        self._client = AIOKafkaProducer(
            **self._connection.client_settings(),
            acks="all",
            enable_idempotence=True,
            linger_ms=_ms(self._linger_s),
            max_batch_size=BATCH_BYTES,
            max_request_size=MAX_REQUEST_BYTES,
            request_timeout_ms=_ms(PRODUCER_REQUEST_TIMEOUT_S),
        )
        # Else a partition that has no leader for 10 s fails its batch, and with it the whole producer.
        self._client._message_accumulator._batch_ttl = math.inf
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._client.start()
        except (ClientError, TimeoutError) as error:
            await self.stop()
            servers = self._connection.bootstrap_servers
            raise KafkaError(f"cannot produce to {servers}: {str(error) or 'no answer'}") from error
        except BaseException:
            await self.stop()
            raise
        self._client._sender.sender_task.add_done_callback(self._on_sender_ended)
        _watch_metadata(self._client.client, self._fail)

    async def stop(self) -> None:
        stopped = KafkaError("the producer has stopped: whether the record was appended is unknown")
        self._failure = self._failure or stopped
        if self._client and not await _ends_well(self._client.stop()):
            await self._tear_down()

    async def send(self, record: Outgoing) -> "Future[Appended]":
        sent = await self._send(record)
        acknowledged: Future[Appended] = self._loop.create_future()
        sent.add_done_callback(partial(self._settle, acknowledged))
        return acknowledged

    async def send_all(self, records: Sequence[Outgoing]) -> Sequence[Appended]:
        futures = [await self.send(record) for record in records]
        return await asyncio.gather(*futures)

    async def partitions(self, topic: str) -> int:
        """How many it has; waits for a broker that does not answer. Raises KafkaError when there is no such topic."""
        name = self._connection.topic(topic)
        return len(self._client.client.cluster.partitions_for_topic(name) or await self._partitions(name, None))

    async def _send(self, record: Outgoing) -> "Future[RecordMetadata]":
        """The client's own `send` without its second copy of checks, which take longer than all the rest."""
        require_size(record)
        if self._failure:
            raise self._failure
        target = await self._place(record)
        headers = list(record.headers)
        while True:
            try:
                sent: Future[RecordMetadata] = await self._client._message_accumulator.add_message(
                    target, record.key, record.value, PRODUCER_REQUEST_TIMEOUT_S, headers=headers
                )
            except KafkaTimeoutError:
                # The buffer is full: the record was not queued.
                continue
            except ClientError as error:
                raise self._fail(error) from error
            return sent

    async def _place(self, record: Outgoing) -> Target:
        topic, cluster = self._connection.topic(record.topic), self._client.client.cluster
        partitions = cluster.partitions_for_topic(topic) or ()
        if not partitions or (record.partition is not None and record.partition not in partitions):
            partitions = await self._partitions(topic, record.partition)
        if record.partition is not None:
            return Target(topic, record.partition)
        if record.key is not None:
            return Target(topic, partition_of(record.key, len(partitions)))
        return Target(topic, random.choice(list(cluster.available_partitions_for_topic(topic) or partitions)))

    async def _partitions(self, topic: str, wanted: int | None) -> set[int]:
        """Of a topic, or with a partition, not seen yet.

        Waits for a broker that does not answer, a while for one that denies what is wanted.
        """
        client, denied = self._client.client, 0
        client.add_topic(topic)
        while denied < MAX_DENIALS:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PRODUCER_REQUEST_TIMEOUT_S):
                    denied += await client.force_metadata_update()
            if self._failure:
                raise self._failure
            found: set[int] = client.cluster.partitions_for_topic(topic) or set()
            if found and (wanted is None or wanted in found):
                return found
            await asyncio.sleep(METADATA_RETRY_S)
        if found:
            raise KafkaError(f"topic {topic} has no partition {wanted}")
        raise KafkaError(f"topic {topic} does not exist (run `headway topics apply`), or may not be written to")

    def _settle(self, acknowledged: "Future[Appended]", sent: "Future[RecordMetadata]") -> None:
        error = sent.exception()
        failure = self._fail(error) if error else None
        if acknowledged.done():
            return
        if failure is None:
            found = sent.result()
            acknowledged.set_result(Appended(found.partition, found.offset, found.timestamp))
        else:
            acknowledged.set_exception(failure)
            # Whoever awaits it sees the error; nobody has to.
            acknowledged.exception()

    def _on_sender_ended(self, sender: "Future[None]") -> None:
        if not sender.cancelled() and (error := sender.exception()):
            self._fail(error)

    def _fail(self, error: BaseException) -> KafkaError:
        """What the client does not try again is the end of this producer."""
        if self._failure is None:
            self._failure = ProducerDeadError(f"no record can be appended any more: {error!r}")
            self._dead.set_exception(self._failure)
            self._dead.exception()
        return self._failure

    async def _tear_down(self) -> None:
        """What an orderly stop could not do because the broker does not answer."""
        # Its cancellation reaches the sender, and then the request for which that still waits.
        await _ends_well(self._client._sender.close(), 0.1)
        await _ends_well(self._client.client.close())
        accumulator = self._client._message_accumulator
        for batch in (*chain.from_iterable(accumulator._batches.values()), *accumulator._pending_batches):
            # Where its callback will look for it, also when it waits for another try.
            accumulator._pending_batches.add(batch)
            batch.failure(ProducerClosed())
            batch._drain_waiter.exception()


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    """Hands the client's callbacks on."""

    def __init__(
        self,
        revoked: Callable[[Collection[Target]], Awaitable[None]],
        assigned: Callable[[Collection[Target]], Awaitable[None]],
    ) -> None:
        self._revoked = revoked
        self._assigned = assigned

    async def on_partitions_revoked(self, revoked: Collection[Target]) -> None:
        await self._revoked(revoked)

    async def on_partitions_assigned(self, assigned: Collection[Target]) -> None:
        await self._assigned(assigned)


def _watch_metadata(client: Any, lost: Callable[[BaseException], object]) -> None:
    """Tells when the client's routine that learns of leaders has ended, which the library never notices.

    What it does not expect ends it, like uvloop's RuntimeError of a connection that closes as it is written to.
    """

    def on_end(routine: "Future[None]") -> None:
        if not routine.cancelled() and (error := routine.exception()):
            client._sync_task = None  # which to close the client would wait for, and raise its error again
            lost(error)

    client._sync_task.add_done_callback(on_end)


async def _ends_well(stop: Coroutine[Any, Any, None], timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Bounded, and in a task of its own: aiokafka lets the cancellation of its inner tasks escape from a stop."""
    task = asyncio.create_task(stop)
    await asyncio.wait({task}, timeout=timeout_s)
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=timeout_s)
    return task.done() and not task.cancelled() and task.exception() is None


async def _query(answer: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            return await answer
    except (ClientError, TimeoutError) as error:
        raise KafkaError(f"the broker does not answer: {error!r}") from error


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
