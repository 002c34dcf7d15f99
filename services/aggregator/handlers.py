"""The aggregator's shell: feeds the log to the fold, and acts on what it decides."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from schemas import headers
from schemas.base import Json, Output
from schemas.errors import DeadLetterReason, ErrorCode, ErrorDetail
from schemas.events import EVENT, Event, RequestCoordinates, RunFinished, RunStarted, RunTicked
from schemas.metrics import DEAD_LETTERS_TOTAL, RESPONSES_TOTAL, RUN_COMPONENT_SECONDS, RUN_SECONDS
from schemas.responses import MAX_INLINE_RESPONSE_BYTES
from schemas.topics import EVENTS, JOINS, USAGE
from services.aggregator.domain import outcomes
from services.aggregator.domain.decisions import DeadLetter, Decision, Dispatch, Finish, Publish
from services.aggregator.domain.fold import LogRecord, fold, outputs_of
from services.aggregator.domain.outcomes import Mapped
from services.aggregator.domain.state import Partition, Run
from services.aggregator.domain.timers import Timers
from services.chassis.blobs import BlobMissingError, BlobUnavailableError
from services.chassis.clock import LogClock
from services.chassis.expressions import ExpressionError, compile_template
from services.chassis.kafka.dead_letters import dead_letter
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import Consumer, Outgoing, Producer, Record, TopicPartition
from services.chassis.logging import canonical, log, reason
from services.chassis.metrics import Metrics

TICK_INTERVAL_S = 0.05
MAX_TICKS = 1_000
"""Ticks sent for one partition at a time: a flood of deadlines must not fill the producer."""
BLOB_RETRY_S = 0.5


class OutputStore(Protocol):
    """Reads outputs, wherever they are."""

    async def load_output(self, output: Output) -> Json:
        """Raises BlobMissingError or BlobUnavailableError."""


class RequestReader(Protocol):
    """Reads a request's record again."""

    async def fetch(self, coordinates: RequestCoordinates) -> Record | None:
        """None when it is no longer retained."""


class RunStopper(Protocol):
    """Tells workers that nobody waits for a run any more. Best effort."""

    def stop_run(self, run_id: str) -> None: ...


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


class Join:
    """Folds the partitions it owns. A handler of the stream runtime."""

    def __init__(
        self,
        *,
        window_ms: int,
        clock: LogClock,
        producer: Producer,
        outputs: OutputStore,
        requests: RequestReader,
        stopper: RunStopper,
        metrics: Metrics,
    ) -> None:
        self._window_ms = window_ms
        self._clock = clock
        self._producer = producer
        self._outputs = outputs
        self._requests = requests
        self._stopper = stopper
        self._responses = metrics.counter(RESPONSES_TOTAL)
        self._seconds = metrics.histogram(RUN_SECONDS)
        self._components = metrics.histogram(RUN_COMPONENT_SECONDS)
        self._dead_letters = metrics.counter(DEAD_LETTERS_TOTAL)
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

    def open_runs(self) -> dict[int, int]:
        """Open runs by partition."""
        return {partition: len(owned.state.open) for partition, owned in self.owned.items()}

    async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
        """Folds a batch; what each record decided must be acknowledged before the commit passes it."""
        return [(record, await self._on_record(record)) for record in records]

    async def _on_record(self, record: Record) -> Sequence[Outgoing]:
        self._clock.observe(record.timestamp)
        owned = self.owned.get(record.partition)
        if owned is None:
            return ()
        owned.position = record.offset + 1
        silent = record.offset < owned.acted
        try:
            event = _decode(record)
        except UndecodableEventError as error:
            return () if silent else [self._dead_letter(record, DeadLetterReason.UNDECODABLE, str(error))]
        if event is None:
            return ()
        owned.state, decisions = fold(owned.state, LogRecord(record.timestamp, event))
        run = owned.state.open.get(event.run_id)
        owned.timers.schedule(event.run_id, run.next_due if run is not None else None)
        return () if silent or not decisions else await self._act(decisions, record)

    async def _act(self, decisions: Sequence[Decision], record: Record) -> list[Outgoing]:
        outgoing: list[Outgoing] = []
        for decision in decisions:
            if isinstance(decision, Dispatch):
                task = {headers.TASK_ID: decision.ready.task_id}
                outgoing.append(run_record(JOINS, decision.ready, more=task))
            elif isinstance(decision, Finish):
                outgoing.append(run_record(EVENTS, await self._finish(decision.run), partition=record.partition))
            elif isinstance(decision, Publish):
                outgoing.extend(self._publish(decision, record))
            else:
                outgoing.extend(await self._refuse(decision))
        return outgoing

    # The outcome ----------------------------------------------------------------------------

    async def _finish(self, run: Run) -> RunFinished:
        if not outcomes.reaches_output(run):
            return outcomes.finish(run, Mapped())
        finished = outcomes.finish(run, await self._map_output(run))
        size = len(to_json(finished.response))
        if size <= MAX_INLINE_RESPONSE_BYTES:
            return finished
        return outcomes.finish(run, Mapped(error=outcomes.too_large(size, MAX_INLINE_RESPONSE_BYTES)))

    async def _map_output(self, run: Run) -> Mapped:
        assert isinstance(run.started, RunStarted)
        graph = run.started.graph
        try:
            template = compile_template(graph.output, graph.output_reads)
            request = await self._load(run, run.started.input) if template.reads_input else None
            outputs = {
                step_id: await self._load(run, output)
                for step_id, output in outputs_of(run, graph.output_reads).items()
            }
            return Mapped(template.evaluate(request, outputs))
        except (ExpressionError, BlobMissingError, BlobUnavailableError) as error:
            return Mapped(error=ErrorDetail(code=ErrorCode.INVALID_OUTPUT, message=f"output: {reason(error)}"))

    async def _load(self, run: Run, output: Output) -> Json:
        """A store that cannot be reached is tried again until the deadline; a blob that is gone is gone."""
        assert isinstance(run.started, RunStarted)
        while True:
            try:
                return await self._outputs.load_output(output)
            except BlobUnavailableError:
                if (self._clock.now_ms() or 0) >= run.started.deadline_at:
                    raise
                await asyncio.sleep(BLOB_RETRY_S)

    def _publish(self, decision: Publish, record: Record) -> list[Outgoing]:
        """The response exactly as the winning record holds it, so that every copy has the same bytes."""
        finished = decision.finished
        correlation = {headers.CORRELATION_ID: finished.correlation_id} if finished.correlation_id else {}
        response = run_record(
            finished.response_topic,
            finished,
            key=finished.response.request_id,
            value=to_json(from_json(record.value or b"{}")["response"]),
            more={headers.MESSAGE_TYPE: "InferenceResponse", **correlation},
        )
        if decision.abandoned:
            self._stopper.stop_run(finished.run_id)
        self._count(finished)
        return [response, run_record(USAGE, finished.usage, key=finished.tenant)]

    def _count(self, finished: RunFinished) -> None:
        response, timing = finished.response, finished.response.timing
        self._responses.labels(response.pipeline, response.status).inc()
        self._seconds.labels(response.pipeline, response.status).observe(timing.total_ms / 1_000)
        parts = {
            "queue": timing.queue_ms,
            "cold": timing.cold_ms,
            "service": timing.service_ms,
            "coordination": timing.coordination_ms,
        }
        for component, milliseconds in parts.items():
            self._components.labels(response.pipeline, component).observe(milliseconds / 1_000)
        canonical(
            "run_finished",
            run_id=finished.run_id,
            tenant=finished.tenant,
            pipeline=response.pipeline,
            status=response.status,
            error=response.error.code if response.error else None,
            total_ms=timing.total_ms,
            coordination_ms=timing.coordination_ms,
            cost_usd=finished.usage.cost_usd,
        )

    # What cannot be joined ------------------------------------------------------------------

    async def _refuse(self, decision: DeadLetter) -> list[Outgoing]:
        """Dead-letters the request itself: a response would be a second one."""
        record = await self._requests.fetch(decision.request)
        if record is None:
            log.warning("request_not_retained", topic=decision.request.topic, offset=decision.request.offset)
            return []
        return [self._dead_letter(record, decision.reason, decision.message)]

    def _dead_letter(self, record: Record, why: DeadLetterReason, message: str) -> Outgoing:
        self._dead_letters.labels(record.topic, why).inc()
        canonical("dead_lettered", topic=record.topic, partition=record.partition, offset=record.offset, why=message)
        return dead_letter(record, why, message)

    # Time -----------------------------------------------------------------------------------

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


class UndecodableEventError(Exception):
    """A record of the events topic that is no event of a known type."""


def _decode(record: Record) -> Event | None:
    """The event, or None for a type this version does not know: a newer writer's, to be passed over."""
    try:
        return EVENT.validate_json(record.value or b"")
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] == "union_tag_invalid":
            log.warning("unknown_event_type", partition=record.partition, offset=record.offset)
            return None
        raise UndecodableEventError(reason(error)) from None
