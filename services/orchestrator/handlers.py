"""The orchestrator's two halves, both handlers of streams: admission of requests, and dispatch of ready steps.

Whatever is wrong with one record ends with that record: one that ended its stream would be delivered again, for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from schemas import headers, ids
from schemas.base import Json, LogTime, Output
from schemas.errors import DeadLetterReason, ErrorCode, ErrorDetail
from schemas.events import RequestCoordinates, RunRejected, RunStarted, StepCompleted, StepFailed, StepSkipped
from schemas.fleet import BreakerState, ScalingDecision, WorkerStatus
from schemas.graphs import StepKind
from schemas.joins import StepReady
from schemas.metrics import REQUESTS_TOTAL, SPILLED_TASKS_TOTAL
from schemas.models import Queue
from schemas.topics import EVENTS, JOINS, MAX_RECORD_BYTES
from services.chassis.blobs import INLINE_BYTES, BlobMissingError, BlobUnavailableError
from services.chassis.clock import LogClock
from services.chassis.expressions import ExpressionError, compile_condition, known_template
from services.chassis.kafka.dead_letters import DeadLetters
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.records import fits, record_bytes
from services.chassis.kafka.types import Outgoing, Record
from services.chassis.logging import canonical, log, reason
from services.chassis.metrics import Metrics
from services.chassis.tracing import Tracer
from services.orchestrator.domain import steps
from services.orchestrator.domain.admission import Admitted, Catalog, RequestRecord, admit, refuse
from services.orchestrator.domain.outstanding import Outstanding
from services.orchestrator.domain.routing import NO_DECISIONS, Routing
from services.orchestrator.gate import Gate
from services.orchestrator.spans import admission, traced

StepEvent = StepCompleted | StepFailed | StepSkipped
Outcomes = Sequence[tuple[Record, Sequence[Outgoing]]]
T = TypeVar("T")

AT_ONCE = 64
"""Records of a batch that may use the blob store at the same time: more would time out waiting for each other."""
SMALL_BYTES = INLINE_BYTES // 4
"""A request up to this size has no input that needs a claim check: JSON that is decoded and encoded again grows at
most 3.8 times (`1e15`). A ready step might need one, if its template repeats a value: it then delays its batch."""
MAX_TENANT = 256
DEAD_LETTERED = (DeadLetterReason.INVALID, DeadLetterReason.UNDECODABLE, DeadLetterReason.POISON)
POISONED_REQUEST = "the request could not be handled; it was kept for inspection"


class OutputStore(Protocol):
    """Keeps large values by their content."""

    async def store_output(self, value: Json) -> Output:
        """Inline when small. Raises BlobUnavailableError."""

    async def load_output(self, output: Output) -> Json:
        """Raises BlobMissingError or BlobUnavailableError."""


class LiveCatalog(Catalog, Protocol):
    """The configuration in force."""

    @property
    def queues(self) -> Mapping[tuple[str, str], Queue]: ...


class Admission:
    """Turns request records into `run-started` or `run-rejected`, or dead-letters them."""

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        outputs: OutputStore,
        clock: LogClock,
        metrics: Metrics,
        gate: Gate,
        *,
        tracer: Tracer | None = None,
    ) -> None:
        self._catalog = catalog
        self._outputs = outputs
        self._clock = clock
        self._gate = gate
        self._tracer = tracer
        self._requests = metrics.counter(REQUESTS_TOTAL)
        self._dead_letters = DeadLetters(metrics)

    def expect(self, topics: Iterable[str]) -> None:
        """These are the ingress topics from now on."""
        self._dead_letters.expect(topics, DEAD_LETTERED)

    async def handle(self, records: Sequence[Record]) -> Outcomes:
        """What each record becomes; the stream appends it before its commit passes the record."""
        await self._gate.opened()
        catalog = self._catalog()
        return await _each(records, partial(_admitted, catalog), partial(self._on_record, catalog))

    async def _on_record(
        self, catalog: Catalog, record: Record, admitted: Admitted | Exception
    ) -> Sequence[Outgoing]:
        self._clock.observe(record.timestamp)
        try:
            return [await self._decide(record, admitted, catalog)]
        except Exception as error:
            log.error("request_poisoned", **_where(record), exc_info=error)
            letter = self._dead_letters.letter(record, DeadLetterReason.POISON, type(error).__qualname__)
            return [letter, *self._last_words(record, catalog)]

    async def _decide(self, record: Record, admitted: Admitted | Exception, catalog: Catalog) -> Outgoing:
        if isinstance(admitted, Exception):
            raise admitted
        if isinstance(admitted, RunStarted):
            outgoing = self._gate.refusal(admitted) or await self._let_in(admitted)
            if isinstance(outgoing, Outgoing):
                return outgoing
            admitted = refuse(_request(record), catalog, outgoing)
        if isinstance(admitted, RunRejected):
            return self._rejected(record, admitted)
        return self._dead_letters.letter(record, admitted.reason, admitted.message)

    async def _let_in(self, started: RunStarted) -> Outgoing | ErrorDetail:
        outgoing = await self._started(started)
        if isinstance(outgoing, ErrorDetail):
            self._gate.withdraw()
        return outgoing

    async def _started(self, started: RunStarted) -> Outgoing | ErrorDetail:
        """The first record of a run, or why it cannot be carried."""
        try:
            stored = await self._outputs.store_output(started.input.value)
        except BlobUnavailableError as error:
            return ErrorDetail(code=ErrorCode.INTERNAL, message=f"input: {reason(error)}", retryable=True)
        if self._tracer is not None:
            started = traced(started, self._tracer)
        carried = started if stored.ref is None else started.model_copy(update={"input": stored})
        outgoing = run_record(EVENTS, carried)
        if not fits(outgoing):
            what = "the pipeline's graph with the request's `input` and `labels`"
            return ErrorDetail(code=ErrorCode.CONTENT_TOO_LARGE, message=_too_large(what, outgoing))
        self._requests.labels(started.graph.pipeline, started.priority).inc()
        self._tell(started)
        canonical(
            "run_started",
            run_id=started.run_id,
            tenant=started.tenant,
            pipeline=started.graph.pipeline,
            priority=started.priority,
        )
        return outgoing

    def _rejected(self, record: Record, rejected: RunRejected) -> Outgoing:
        if self._tracer is not None:
            rejected = traced(rejected, self._tracer)
        outgoing = run_record(EVENTS, rejected)
        if not fits(outgoing):
            why = _too_large("the rejection", outgoing)
            return self._dead_letters.letter(record, DeadLetterReason.INVALID, why)
        self._tell(rejected)
        canonical(
            "run_rejected",
            run_id=rejected.run_id,
            tenant=rejected.tenant,
            code=rejected.error.code,
            why=rejected.error.message,
        )
        return outgoing

    def _tell(self, opening: RunStarted | RunRejected) -> None:
        if self._tracer is not None:
            self._tracer.record(admission(opening, self._clock.now_ms() or opening.request.log_time))

    def _last_words(self, record: Record, catalog: Catalog) -> Sequence[Outgoing]:
        """An answer for whoever sent poison, if as much as that can be made of it."""
        try:
            rejected = refuse(
                _request(record), catalog, ErrorDetail(code=ErrorCode.INTERNAL, message=POISONED_REQUEST)
            )
            return [self._rejected(record, rejected)] if isinstance(rejected, RunRejected) else []
        except Exception as error:
            log.warning("poison_unanswered", **_where(record), exc_info=error)
            return []


class Dispatch:
    """Turns ready steps into tasks, or into the event that completes, skips or fails them."""

    def __init__(
        self,
        catalog: Callable[[], LiveCatalog],
        outputs: OutputStore,
        clock: LogClock,
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._outputs = outputs
        self._clock = clock
        self._dead_letters = DeadLetters(metrics)
        self._dead_letters.expect([JOINS], DEAD_LETTERED)
        self._spilled = metrics.counter(SPILLED_TASKS_TOTAL)
        self._routing = Routing()

    async def handle(self, records: Sequence[Record]) -> Outcomes:
        """What each record becomes; the stream appends it before its commit passes the record."""
        return await _each(records, _step, self._on_record)

    def on_worker_statuses(
        self,
        workers: Sequence[tuple[LogTime, WorkerStatus]],
        decisions: Mapping[str, ScalingDecision] = NO_DECISIONS,
    ) -> None:
        """Learns from the live workers how far each task partition is done, and how long a task would wait.

        `decisions`: by queue label; of them, whether a worker would be started where there is none.
        """
        now = self._clock.now_ms()
        if now is not None:
            self._routing.heard(workers, self._catalog().queues, now, decisions)

    def on_breakers(self, breakers: Sequence[tuple[LogTime, BreakerState]], workers: Sequence[WorkerStatus]) -> None:
        """Learns which components are ill."""
        now = self._clock.now_ms()
        if now is not None:
            self._routing.heard_breakers(breakers, workers, now)

    def outstanding(self, topic: str) -> Outstanding:
        """The tasks that a task topic holds."""
        return self._routing.outstanding(topic)

    async def _on_record(self, record: Record, ready: StepReady | ValueError) -> Sequence[Outgoing]:
        self._clock.observe(record.timestamp)
        if isinstance(ready, ValueError):
            return self._given_up(record, DeadLetterReason.UNDECODABLE, reason(ready), undecodable_step(record))
        try:
            return self._fitting(record, ready, await self._outcome(ready))
        except Exception as error:
            log.error("step_poisoned", **_where(record), exc_info=error)
            failed = steps.failed(ready, ErrorCode.INTERNAL, "the step could not be dispatched; the log says why")
            return self._given_up(record, DeadLetterReason.POISON, type(error).__qualname__, failed)

    async def _outcome(self, ready: StepReady) -> Outgoing:
        try:
            return await self._dispatch(ready)
        except ExpressionError as error:
            return self._event(steps.failed(ready, ErrorCode.INVALID_INPUT, str(error)))
        except BlobMissingError as error:
            return self._event(steps.failed(ready, ErrorCode.INTERNAL, reason(error)))
        except BlobUnavailableError as error:
            return self._event(steps.failed(ready, ErrorCode.INTERNAL, reason(error), retryable=True))

    async def _dispatch(self, ready: StepReady) -> Outgoing:
        step, names = ready.step, ready.step.reads
        request = await self._outputs.load_output(ready.input) if ready.input is not None else None
        outputs = {name: await self._outputs.load_output(output) for name, output in ready.outputs.items()}
        if step.when is not None and not compile_condition(step.when, names).evaluate(request, outputs):
            return self._event(steps.skipped(ready))
        written = step.input if ready.target.model_class or step.kind is not StepKind.MODEL else ready.target.value
        value = known_template(written, names).evaluate(request, outputs)
        stored = await self._stored(value)
        if ready.target.model_class is None:
            return self._event(steps.completed(ready, stored))
        return self._task(ready, stored)

    async def _stored(self, value: Json) -> Output:
        try:
            return await self._outputs.store_output(value)
        except ValueError as error:
            raise ExpressionError(reason(error)) from None

    def _task(self, ready: StepReady, stored: Output) -> Outgoing:
        candidates = steps.candidates(ready, self._catalog().queues)
        route = self._routing.route(ready, candidates, stored, lambda: self._clock.now_ms() or ready.ready_at)
        if route is None:
            return self._event(steps.failed(ready, ErrorCode.ENGINE_UNAVAILABLE, steps.nowhere(ready, candidates)))
        queue = route.queue
        if route.spilled:
            self._spilled.labels(queue.model_class, queue.backend).inc()
        task = steps.task(ready, queue, stored.value, stored.ref)
        key, task_id = ready.session or ready.run_id, {headers.TASK_ID: ready.task_id}
        return run_record(queue.topic, task, key=key, partition=route.partition, more=task_id)

    def _event(self, event: StepEvent) -> Outgoing:
        return run_record(EVENTS, event)

    def _fitting(self, record: Record, ready: StepReady, outgoing: Outgoing) -> Sequence[Outgoing]:
        """What its topic takes."""
        if fits(outgoing):
            return [outgoing]
        why = _too_large("the step's record", outgoing)
        failed = steps.failed(ready, ErrorCode.CONTENT_TOO_LARGE, why)
        if fits(event := self._event(failed)):
            return [event]
        return self._given_up(record, DeadLetterReason.INVALID, why, undecodable_step(record))

    def _given_up(
        self, record: Record, why: DeadLetterReason, message: str, failed: StepFailed | None
    ) -> Sequence[Outgoing]:
        """A dead letter, and its step fails at once: the run must not wait for the deadline."""
        letter = self._dead_letters.letter(record, why, message)
        event = self._event(failed) if failed is not None else None
        return [letter, event] if event is not None and fits(event) else [letter]


async def _each(
    records: Sequence[Record],
    read: Callable[[Record], T],
    outcome: Callable[[Record, T], Awaitable[Sequence[Outgoing]]],
) -> Outcomes:
    """Every record's outcome, in order. Those that may have to wait for the blob store wait together.

    The others wait for nothing, and cost no task. They are all read first: one stage's code at a time stays in the
    processor's caches, which saves a tenth of the whole.
    """
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(record: Record) -> Sequence[Outgoing]:
        async with limit:
            return await outcome(record, read(record))

    may_wait = [_may_wait(record) for record in records]
    waiting = [limited(record) for record, waits in zip(records, may_wait, strict=True) if waits]
    found = iter(await asyncio.gather(*waiting) if waiting else ())
    known = iter([read(record) for record, waits in zip(records, may_wait, strict=True) if not waits])
    return [
        (record, next(found) if waits else await outcome(record, next(known)))
        for record, waits in zip(records, may_wait, strict=True)
    ]


def _admitted(catalog: Catalog, record: Record) -> Admitted | Exception:
    try:
        return admit(_request(record), catalog)
    except Exception as error:
        return error


def _step(record: Record) -> StepReady | ValueError:
    try:
        return StepReady.model_validate_json(record.value or b"")
    except ValueError as error:
        return error


def _may_wait(record: Record) -> bool:
    value = record.value or b""
    return len(value) > SMALL_BYTES or b'"ref"' in value


def _request(record: Record) -> RequestRecord:
    coordinates = RequestCoordinates(
        topic=record.topic, partition=record.partition, offset=record.offset, log_time=record.timestamp
    )
    return RequestRecord(coordinates, record.key, record.value, record.headers)


def _where(record: Record) -> dict[str, str | int]:
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset}


def _too_large(what: str, outgoing: Outgoing) -> str:
    return f"{what} would take {record_bytes(outgoing)} bytes; a record has at most {MAX_RECORD_BYTES}"


def undecodable_step(record: Record) -> StepFailed | None:
    """The failure of the step that a record's headers name; None when they name none."""
    task_id, tenant = record.header(headers.TASK_ID), record.header(headers.TENANT)
    try:
        run_id, step, attempt = ids.parse_task_id(task_id or "")
    except ValueError:
        return None
    if not tenant or len(tenant) > MAX_TENANT:
        return None
    detail = ErrorDetail(code=ErrorCode.INTERNAL, message="the step's record could not be read", step=step)
    return StepFailed(run_id=run_id, tenant=tenant, step=step, attempt=attempt, error=detail)
