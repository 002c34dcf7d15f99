"""The raw batch runtime: poll, handle, send without waiting, and commit what has been acknowledged.

Nothing here is done one record at a time: a batch is handled at once, its records are queued together, and commits
are made on a timer. A record's offset is passed only when everything it gave rise to is in the log.
"""

import asyncio
import contextlib
from asyncio import Future
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from services.chassis.kafka.supervision import Watch, supervise
from services.chassis.kafka.types import (
    Appended,
    Commit,
    Consumer,
    KafkaError,
    Outgoing,
    Producer,
    RebalanceListener,
    Record,
    RecordTooLargeError,
    TopicPartition,
)
from services.chassis.kafka.watermark import Watermark

POLL_S = 0.25
"""Bounds how long a stop waits for a poll; a record that arrives ends it at once."""
DRAIN_S = 2.0
"""How long a revoke, or a stop, waits for acknowledgements, and then for its commit."""
READY_S = 10.0


class BatchHandler(Protocol):
    """What a service does with records."""

    async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
        """For each record, in order, what must be acknowledged before the commit may pass it.

        Records left out pass at once. It is called for one batch at a time, and cancelled when it still runs two
        seconds after its partitions were revoked: the next owner is given the batch. Whatever it raises ends the
        stream, and the batch is delivered again: poison is its own to deal with, and so is what does not fit its
        topic (`records.fits`).
        """


class PartitionState(Protocol):
    """What a service knows of its partitions, made from their records: it comes and goes with them."""

    async def on_assigned(self, partitions: frozenset[TopicPartition], consumer: Consumer) -> None:
        """Before the first record is polled; may seek."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """After the last commit, also when the stream stops or its consumer is replaced."""

    def metadata(self, tp: TopicPartition, offset: int) -> str:
        """The owner's own string, for a commit at `offset`. A new one is committed even where the offset stands."""

    def on_committed(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """These commits were made."""


@dataclass(frozen=True, slots=True)
class _Settings:
    max_batch: int
    max_unacknowledged: int
    commit_interval_s: float
    state: PartitionState | None


class OversizedOutputError(Exception):
    """The handler made a record that its topic does not take: a bug, which no other consumer would mend."""


class Stream:
    """A group member that turns records into records.

    Records read again from below the commit, where `state` has sought them, are handled like others; the commit never
    goes back.
    """

    def __init__(
        self,
        consumer_factory: Callable[[RebalanceListener], Consumer],
        producer: Producer,
        handler: BatchHandler,
        *,
        max_batch: int = 500,
        max_unacknowledged: int = 5_000,
        commit_interval_s: float = 0.5,
        state: PartitionState | None = None,
    ) -> None:
        self._consumer_factory = consumer_factory
        self._producer = producer
        self._handler = handler
        self._settings = _Settings(max_batch, max_unacknowledged, commit_interval_s, state)
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._session: _Session | None = None

    @property
    def progressing(self) -> bool:
        """Assigned, perhaps to nothing, and polling: what readiness asks."""
        return self._session is not None and self._session.progressing

    @property
    def unacknowledged(self) -> int:
        """Records polled whose outcome is not in the log yet."""
        return self._session.assignment.unfinished if self._session else 0

    async def run(self) -> None:
        """Until stopped.

        Raises ProducerDeadError, what the handler or a hook raised, OversizedOutputError, or KafkaError without a
        broker. A consumer that fails or stalls is replaced, a few times in a row.
        """
        self._ended.clear()
        try:
            await supervise(self._live, self._stopping)
        finally:
            self._session = None
            self._ended.set()

    async def _live(self) -> None:
        """The life of one consumer."""
        self._session = _Session(self._consumer_factory, self._producer, self._handler, self._settings)
        try:
            await self._session.run(self._stopping)
        except KafkaError:
            await self._session.forget()
            raise

    async def stop(self) -> None:
        """Stops polling, waits up to 2 s for acknowledgements, commits, leaves; returns when `run` is about to."""
        self._stopping.set()
        await self._ended.wait()


@dataclass(slots=True)
class _Assignment:
    """What is ours between two rebalances. A new one makes everything about the old one void."""

    committed: dict[TopicPartition, Commit] = field(default_factory=dict)
    watermarks: dict[TopicPartition, Watermark] = field(default_factory=dict)

    @property
    def unfinished(self) -> int:
        return sum(watermark.unfinished for watermark in self.watermarks.values())

    def deliver(self, records: Iterable[Record]) -> None:
        for record in records:
            self.watermarks[record.tp].delivered(record.offset)

    def committable(self, state: PartitionState | None) -> dict[TopicPartition, Commit]:
        """Where the commit can move forward, or has something else to say."""
        found = {}
        for tp, watermark in self.watermarks.items():
            last = self.committed.get(tp)
            offset = max(watermark.committable() or -1, last.offset if last else -1)
            if offset >= 0 and (commit := Commit(offset, state.metadata(tp, offset) if state else "")) != last:
                found[tp] = commit
        return found


class _Ticket:
    """One record's outgoing records, until all are acknowledged."""

    __slots__ = ("_offset", "_watermark", "missing")

    def __init__(self, watermark: Watermark, offset: int, missing: int) -> None:
        self._watermark = watermark
        self._offset = offset
        self.missing = missing

    def punch(self) -> bool:
        """One more is acknowledged; whether that was the last."""
        self.missing -= 1
        if self.missing:
            return False
        self._watermark.done(self._offset)
        return True


class _Session:
    """The life of one consumer."""

    def __init__(
        self,
        consumer_factory: Callable[[RebalanceListener], Consumer],
        producer: Producer,
        handler: BatchHandler,
        settings: _Settings,
    ) -> None:
        self.consumer = consumer_factory(self)
        self.assignment = _Assignment()
        self._producer = producer
        self._handler = handler
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._assigned = False
        self._draining = False
        self._handling: Future[None] | None = None
        """One batch, from its delivery to the last send."""
        self._watch = Watch(self.consumer, self._wanted)
        self._turned_at = 0.0

    @property
    def progressing(self) -> bool:
        return self._assigned and self._loop.time() - self._turned_at < READY_S

    async def run(self, stopping: asyncio.Event) -> None:
        """Until stopping, or the first failure."""
        work = [asyncio.create_task(part) for part in (self._poll(), self._commit_on_time(), self._watch.run())]
        stop: Future[Any] = asyncio.create_task(stopping.wait())
        try:
            vital: list[Future[None]] = [self._producer.dead, *work]
            await asyncio.wait([*vital, stop], return_when=asyncio.FIRST_COMPLETED)
            _raise_first(vital)
            self._draining = True
            await self._settle()
            await self.forget()
        finally:
            await _cancel([*work, stop])
            await self.consumer.stop()

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        committed = await self._committed(partitions)
        if self._settings.state:
            await self._settings.state.on_assigned(partitions, self.consumer)
        self.assignment = _Assignment(committed, {tp: Watermark() for tp in sorted(partitions)})
        self._turned_at = self._loop.time()
        self._assigned = True

    async def on_revoked(self, _: frozenset[TopicPartition]) -> None:
        await self._settle()
        await self.forget()

    async def forget(self) -> None:
        """From now on nothing of what was assigned has an effect."""
        partitions = frozenset(self.assignment.watermarks)
        self.assignment = _Assignment()
        if self._handling:
            await _cancel([self._handling])
        if partitions and self._settings.state:
            await self._settings.state.on_revoked(partitions)

    async def _committed(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, Commit]:
        """Where the group stands. A first commit is made where it has none, else its lag counts expired records."""
        committed = dict(await self.consumer.committed(partitions))
        if missing := partitions - committed.keys():
            begin = await self.consumer.beginning_offsets(missing)
            first = {tp: Commit(offset) for tp, offset in begin.items()}
            if await self.consumer.commit(first):
                committed.update(first)
        return committed

    async def _poll(self) -> None:
        await self.consumer.start()
        while not self._draining:
            room = self._settings.max_unacknowledged - self.assignment.unfinished
            if room <= 0:
                await self._until_changed(POLL_S)
                continue
            with self._watch.polling():
                records = await self.consumer.poll(
                    None, max_records=min(room, self._settings.max_batch), timeout_s=POLL_S
                )
            self._turned_at = self._loop.time()
            if records and not self._draining:
                await self._handle(records)

    async def _handle(self, records: Sequence[Record]) -> None:
        """In a task of its own: it may have to end before its consumer does."""
        assignment = self.assignment
        assignment.deliver(records)
        self._watch.delivered()
        self._handling = asyncio.create_task(self._process(assignment, records))
        try:
            await asyncio.wait({self._handling})
        finally:
            await _cancel([self._handling])
        if self.assignment is assignment or not self._handling.cancelled():
            self._handling.result()

    async def _process(self, assignment: _Assignment, records: Sequence[Record]) -> None:
        results = await self._handler.handle(records)
        # It may have been revoked, and the handler deaf to its cancellation: the next owner handles them.
        if self.assignment is assignment:
            await self._send(assignment, records, results)
            self._changed.set()

    async def _send(
        self,
        assignment: _Assignment,
        records: Sequence[Record],
        results: Sequence[tuple[Record, Sequence[Outgoing]]],
    ) -> None:
        waiting = {(record.topic, record.partition, record.offset) for record, outgoing in results if outgoing}
        for record in records:
            if (record.topic, record.partition, record.offset) not in waiting:
                assignment.watermarks[record.tp].done(record.offset)
        for record, outgoing in results:
            if not outgoing:
                continue
            ticket = _Ticket(assignment.watermarks[record.tp], record.offset, len(outgoing))
            acknowledged = partial(self._acknowledged, ticket)
            for out in outgoing:
                (await self._queue(out)).add_done_callback(acknowledged)

    async def _queue(self, out: Outgoing) -> "Future[Appended]":
        try:
            return await self._producer.send(out)
        except RecordTooLargeError as error:
            raise OversizedOutputError(str(error)) from error

    def _acknowledged(self, ticket: _Ticket, sent: "Future[Appended]") -> None:
        # A failed one is never passed; `producer.dead` ends the stream.
        if not sent.cancelled() and sent.exception() is None and ticket.punch():
            self._changed.set()

    async def _settle(self) -> None:
        """Before partitions go: the last commit passes all that can be acknowledged in time."""
        await self._drain()
        await _wait(self._commit(), DRAIN_S)

    async def _drain(self) -> None:
        """Waits for what is being handled and for acknowledgements."""
        deadline = self._loop.time() + DRAIN_S
        while self.assignment.unfinished:
            left = deadline - self._loop.time()
            if left <= 0:
                return
            await self._until_changed(left)

    async def _until_changed(self, timeout_s: float) -> None:
        self._changed.clear()
        await _wait(self._changed.wait(), timeout_s)

    async def _commit_on_time(self) -> None:
        while True:
            await asyncio.sleep(self._settings.commit_interval_s)
            await self._commit()

    async def _commit(self) -> None:
        assignment, state = self.assignment, self._settings.state
        commits = assignment.committable(state)
        if not commits:
            return
        taken = await self.consumer.commit(commits)
        self._watch.committed(taken=taken)
        if not taken:
            return
        for tp, commit in commits.items():
            if tp not in assignment.committed or commit.offset >= assignment.committed[tp].offset:
                assignment.committed[tp] = commit
        if state:
            state.on_committed(commits)

    def _wanted(self) -> frozenset[TopicPartition]:
        """While something is in hand nothing need be delivered."""
        return frozenset() if self.assignment.unfinished else self.consumer.assignment()


def _raise_first(finished: Iterable["Future[None]"]) -> None:
    for future in finished:
        if future.done():
            future.result()


async def _cancel(tasks: "Sequence[Future[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _wait(for_it: Coroutine[Any, Any, Any], timeout_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await for_it
