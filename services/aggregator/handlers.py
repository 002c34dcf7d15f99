"""The aggregator's shell: feeds the log to the fold, and hands on what it decides."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from schemas.errors import DeadLetterReason
from schemas.events import EVENT, Event, RunTicked
from schemas.topics import EVENTS
from services.aggregator.actions import Actions, Decided
from services.aggregator.domain.decisions import Decision
from services.aggregator.domain.fold import FoldTooOldError, LogRecord, fold
from services.aggregator.domain.state import Partition
from services.aggregator.domain.timers import Timers
from services.chassis.clock import LogClock
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import Consumer, Outgoing, Producer, Record, TopicPartition
from services.chassis.logging import log, reason

TICK_INTERVAL_S = 0.05
MAX_TICKS = 1_000
"""Ticks sent for one partition at a time: a flood of deadlines must not fill the producer."""


@dataclass(slots=True)
class Owned:
    """A partition of the events topic while it is ours."""

    state: Partition
    acted: int
    """Decisions of records below this offset were acknowledged before: they are folded silently."""
    end: int
    """The log's end at assignment: timers speak only once the state has caught up with it."""
    position: int
    timers: Timers = field(default_factory=Timers)

    @property
    def is_caught_up(self) -> bool:
        """Whether the state is the present, not some past."""
        return self.position >= self.end

    def fold(self, record: Record, event: Event) -> Sequence[Decision]:
        """Advances the state; what is to be done, which is nothing for a record that was acted upon before."""
        self.state, decisions = fold(self.state, LogRecord(record.timestamp, event))
        run = self.state.open.get(event.run_id)
        self.timers.schedule(event.run_id, run.next_due if run is not None else None)
        return decisions if record.offset >= self.acted else ()


class Join:
    """Folds the partitions it owns. A handler of the stream runtime."""

    def __init__(self, actions: Actions, *, window_ms: int, clock: LogClock, producer: Producer) -> None:
        self._actions = actions
        self._window_ms = window_ms
        self._clock = clock
        self._producer = producer
        self.owned: dict[int, Owned] = {}

    async def on_assigned(self, partitions: frozenset[TopicPartition], consumer: Consumer) -> None:
        """Starts each partition's state from the earliest retained record, silent up to its commit."""
        committed = await consumer.committed(partitions)
        begin = await consumer.beginning_offsets(partitions)
        end = await consumer.end_offsets(partitions)
        for tp in partitions:
            acted = committed[tp].offset if tp in committed else begin[tp]
            consumer.seek(tp, begin[tp])
            self.owned[tp.partition] = Owned(Partition.empty(self._window_ms), acted, end[tp], begin[tp])

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Stops acting on them: the log has another owner."""
        for tp in partitions:
            self.owned.pop(tp.partition, None)
        await self._actions.stop()

    def open_runs(self) -> dict[int, int]:
        """Open runs by partition, as they are now: none of a partition whose state is still some past."""
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
            try:
                if decisions := _fold(owned, record):
                    decided.append((record, decisions))
            except PoisonError as poison:
                if record.offset >= owned.acted:
                    letters.append((record, [self._actions.dead_letters.letter(record, poison.why, str(poison))]))
        return [*letters, *await self._actions.act(decided)]

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
                run = owned.state.open.get(run_id)
                if run is not None:
                    ticked = RunTicked(run_id=run_id, tenant=run.started.tenant)
                    await self._producer.send(run_record(EVENTS, ticked, partition=partition))


class PoisonError(Exception):
    """A record that cannot be folded; the state is what it was before."""

    def __init__(self, why: DeadLetterReason, message: str) -> None:
        super().__init__(message)
        self.why = why


def _fold(owned: Owned, record: Record) -> Sequence[Decision]:
    """Raises PoisonError; FoldTooOldError when this process must not pass the record at all."""
    event = _decode(record)
    if event is None:
        return ()
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
