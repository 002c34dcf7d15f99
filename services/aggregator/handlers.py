"""The aggregator's shell: feeds the log to the fold, and hands on what it decides."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from schemas.errors import DeadLetterReason
from schemas.events import EVENT, Event, RunTicked
from schemas.joins import StepReady
from schemas.topics import EVENTS
from services.aggregator.actions import Actions, Decided
from services.aggregator.domain.decisions import Decision, Dispatch
from services.aggregator.domain.fold import FoldTooOldError, LogRecord, fold
from services.aggregator.domain.packing import adopt, open_run
from services.aggregator.domain.snapshot import SnapshotRef
from services.aggregator.domain.state import PackedRun, Partition, Run
from services.aggregator.domain.timers import Timers
from services.aggregator.snapshots import Snapshots, Trail, Version
from services.chassis.blobs import BlobUnavailableError
from services.chassis.clock import LogClock
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import Commit, Consumer, Outgoing, Producer, Record, TopicPartition
from services.chassis.logging import log, reason

TICK_INTERVAL_S = 0.05
SNAPSHOT_CHECK_S = 0.1
MAX_TICKS = 1_000
"""Ticks sent for one partition at a time: a flood of deadlines must not fill the producer."""


@dataclass(slots=True)
class Owned:
    """A partition of the events topic while it is ours."""

    state: Partition
    position: int
    """The next offset to fold."""
    acted: int
    """Decisions of records below this offset were acknowledged before: they are folded silently."""
    end: int
    """The log's end at assignment: timers speak only once the state has caught up with it."""
    trail: Trail
    timers: Timers = field(default_factory=Timers)

    def __post_init__(self) -> None:
        for run_id, run in self.state.open.items():
            self.timers.schedule(run_id, run.next_due)

    @property
    def is_caught_up(self) -> bool:
        """Whether the state is the present, not some past."""
        return self.position >= self.end

    @property
    def version(self) -> Version:
        """What the log amounts to up to here."""
        return Version(self.position, self.state)

    def fold(self, record: Record, event: Event) -> Sequence[Decision]:
        """Advances the state; what is to be done, which is nothing for a record that was acted upon before."""
        self.state, decisions = fold(self.state, LogRecord(record.timestamp, event))
        run = self.state.open.get(event.run_id)
        self.timers.schedule(event.run_id, run.next_due if run is not None else None)
        return decisions if record.offset >= self.acted else ()


class Join:
    """Folds the partitions it owns. A handler of the stream runtime, and the state of its partitions."""

    def __init__(
        self, actions: Actions, *, window_ms: int, clock: LogClock, producer: Producer, snapshots: Snapshots
    ) -> None:
        self._actions = actions
        self._window_ms = window_ms
        self._clock = clock
        self._producer = producer
        self._snapshots = snapshots
        self.owned: dict[int, Owned] = {}
        self._left: dict[int, Sequence[Version]] = {}
        """What was just revoked: it often comes back at once, when another member has joined or gone."""
        self.resumed = asyncio.Event()
        """Set at every assignment, and when a partition has caught up."""

    async def on_assigned(self, partitions: frozenset[TopicPartition], consumer: Consumer) -> None:
        """Each partition's state, from as near to its commit as one can be had; silent up to the commit.

        All at once: a store that does not answer must not use up the session one partition after another.
        """
        commits = await consumer.committed(partitions)
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        resumed = await asyncio.gather(
            *(
                self._resume(tp.partition, commits.get(tp, Commit(begins[tp])), begins[tp], ends[tp])
                for tp in partitions
            )
        )
        for tp, owned in zip(partitions, resumed, strict=True):
            consumer.seek(tp, owned.position)
            self.owned[tp.partition] = owned
        self._left.clear()
        self.resumed.set()
        log.info(
            "partitions_resumed",
            partitions={number: [owned.position, owned.acted, owned.end] for number, owned in self.owned.items()},
            open_runs=sum(len(owned.state.open) for owned in self.owned.values()),
        )

    async def _resume(self, partition: int, commit: Commit, begin: int, end: int) -> Owned:
        acted = min(commit.offset, end)  # beyond the end only after the log has lost its own
        start = Version(begin, Partition.empty(self._window_ms))
        for version in self._left.get(partition, ()):
            if start.offset < version.offset <= acted:
                start = version
        named = SnapshotRef.named_by(commit.metadata)
        if named is not None and named.as_of > acted:
            named = None
        if named is not None and named.as_of > start.offset:
            try:
                loaded = await self._snapshots.load(partition, named)
            except BlobUnavailableError as error:
                log.warning("snapshot_not_loaded", partition=partition, as_of=named.as_of, exc_info=error)
            else:
                start, named = (start, None) if loaded is None else (loaded, named)
        # A snapshot from before the earliest retained record still knows of runs that somebody waits for.
        position = max(start.offset, begin)
        return Owned(start.state, position, acted, end, self._snapshots.trail(named))

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Stops acting on them: the log has another owner."""
        for tp in partitions:
            if owned := self.owned.pop(tp.partition, None):
                newest = owned.trail.newest
                self._left[tp.partition] = [owned.version] if newest is None else [newest, owned.version]
        await self._actions.stop()

    def metadata(self, tp: TopicPartition, offset: int) -> str:
        """Names a snapshot."""
        owned = self.owned.get(tp.partition)
        return owned.trail.metadata(offset) if owned else ""

    def on_committed(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """The snapshots before the one named are not needed any more."""
        for tp, commit in commits.items():
            if owned := self.owned.get(tp.partition):
                self._snapshots.unneeded(owned.trail.committed(commit.metadata))

    async def keep_snapshots(self) -> None:
        """A component: writes those that are due, one at a time."""
        while True:
            await self.snapshot()
            await self._snapshots.delete_unneeded()
            await asyncio.sleep(max(SNAPSHOT_CHECK_S, self._snapshots.rest_s))

    async def snapshot(self) -> None:
        """Writes one if one is due. Runs to which nothing happens meanwhile stay packed."""
        partition = self._snapshots.next_due({n: (owned.trail, owned.position) for n, owned in self.owned.items()})
        if partition is None:
            return
        owned, before = self.owned[partition], self.owned[partition].version
        packed = await self._snapshots.write(partition, before, owned.trail)
        owned.state = adopt(owned.state, before.state, packed)

    def open_runs(self) -> dict[int, int]:
        """Open runs by partition, where the state is the present."""
        return {number: len(owned.state.open) for number, owned in self.owned.items() if owned.is_caught_up}

    async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
        """Folds a batch; what each record decided must be acknowledged before the commit passes it.

        The whole batch is folded before anything is awaited: no rebalance comes between two of its records, and what
        is awaited afterwards touches no state.
        """
        letters: list[tuple[Record, Sequence[Outgoing]]] = []
        decided: list[Decided] = []
        for record in records:
            self._clock.observe(record.timestamp)
            owned = self.owned.get(record.partition)
            if owned is None:
                continue
            owned.position = record.offset + 1
            if owned.position == owned.end:
                self.resumed.set()
            try:
                if decisions := self._fold(owned, record):
                    decided.append((record, decisions))
            except PoisonError as poison:
                if record.offset >= owned.acted:
                    letters.append((record, [self._actions.dead_letters.letter(record, poison.why, str(poison))]))
        return [*letters, *await self._actions.act([self._to_be_done(*each) for each in decided])]

    def _to_be_done(self, record: Record, decisions: Sequence[Decision]) -> Decided:
        """Without what the log has gone past within the batch: a new owner would have steps done for nobody."""
        open_runs = self.owned[record.partition].state.open
        return record, [d for d in decisions if not (isinstance(d, Dispatch) and _is_past(d.ready, open_runs))]

    def _fold(self, owned: Owned, record: Record) -> Sequence[Decision]:
        """Raises PoisonError; FoldTooOldError when this process must not pass the record at all."""
        event = self._actions.written.find(record) or _decode(record)
        return () if event is None else _folded(owned, record, event)

    async def tick(self) -> None:
        """Appends a tick for every run with a due timer, for ever. Cancelled when the service stops."""
        while True:
            await asyncio.sleep(TICK_INTERVAL_S)
            now = self._clock.now_ms()
            if now is not None:
                await self._tick_due(now)

    async def _tick_due(self, now: int) -> None:
        for partition, owned in list(self.owned.items()):
            if not owned.is_caught_up:
                continue
            for run_id in owned.timers.pop_due(now, MAX_TICKS):
                run = open_run(owned.state, run_id)
                if run is not None:
                    ticked = RunTicked(run_id=run_id, tenant=run.started.tenant)
                    await self._producer.send(run_record(EVENTS, ticked, partition=partition))


def _is_past(ready: StepReady, open_runs: Mapping[str, Run | PackedRun]) -> bool:
    """Whether the run has ended since, or this attempt has, or there is a newer one."""
    run = open_runs.get(ready.run_id)
    if not isinstance(run, Run):
        return run is None
    state = run.steps[ready.step.id]
    return run.outcome is not None or state.attempt != ready.attempt or state.is_over or state.retry_at is not None


class PoisonError(Exception):
    """A record that cannot be folded; the state is what it was before."""

    def __init__(self, why: DeadLetterReason, message: str) -> None:
        super().__init__(message)
        self.why = why


def _folded(owned: Owned, record: Record, event: Event) -> Sequence[Decision]:
    try:
        return owned.fold(record, event)
    except FoldTooOldError:
        raise
    except ValueError as error:
        raise PoisonError(DeadLetterReason.INVALID, reason(error)) from None
    except Exception as error:
        log.exception("event_not_folded", partition=record.partition, offset=record.offset)
        raise PoisonError(DeadLetterReason.POISON, type(error).__name__) from error


def _decode(record: Record) -> Event | None:
    """The event, or None for a type this version does not know: a newer writer's, to be passed over."""
    try:
        return EVENT.validate_json(record.value or b"")
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] == "union_tag_invalid":
            log.warning("unknown_event_type", partition=record.partition, offset=record.offset)
            return None
        raise PoisonError(DeadLetterReason.UNDECODABLE, reason(error)) from None
