"""The orchestrator's two halves: admission of requests, and dispatch of ready steps."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pydantic import ValidationError

from schemas import headers, ids
from schemas.base import Json, Output
from schemas.errors import DeadLetterReason, ErrorCode, ErrorDetail
from schemas.events import RequestCoordinates, RunRejected, RunStarted, StepCompleted, StepFailed, StepSkipped
from schemas.fleet import WorkerStatus
from schemas.graphs import StepKind
from schemas.joins import StepReady
from schemas.metrics import DEAD_LETTERS_TOTAL, REQUESTS_TOTAL
from schemas.models import Queue
from schemas.topics import EVENTS
from services.chassis.blobs import BlobMissingError, BlobUnavailableError
from services.chassis.clock import LogClock
from services.chassis.expressions import ExpressionError, compile_condition, compile_template
from services.chassis.kafka.dead_letters import dead_letter
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import Outgoing, Producer, Record
from services.chassis.logging import canonical, reason
from services.chassis.metrics import Metrics
from services.orchestrator.domain import steps
from services.orchestrator.domain.admission import Catalog, RequestRecord, Undeliverable, admit
from services.orchestrator.domain.outstanding import Outstanding
from services.orchestrator.domain.placement import place

StepEvent = StepCompleted | StepFailed | StepSkipped


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
        producer: Producer,
        outputs: OutputStore,
        clock: LogClock,
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._producer = producer
        self._outputs = outputs
        self._clock = clock
        self._requests = metrics.counter(REQUESTS_TOTAL)
        self._dead_letters = metrics.counter(DEAD_LETTERS_TOTAL)

    async def on_batch(self, records: Sequence[Record]) -> None:
        """Returns when every record's outcome is in the log: only then may they be committed."""
        catalog = self._catalog()
        outgoing = [await self._admit(record, catalog) for record in records]
        for appended in await self._producer.send_all(outgoing):
            self._clock.observe(appended.timestamp)

    async def _admit(self, record: Record, catalog: Catalog) -> Outgoing:
        self._clock.observe(record.timestamp)
        coordinates = RequestCoordinates(
            topic=record.topic, partition=record.partition, offset=record.offset, log_time=record.timestamp
        )
        admitted = admit(RequestRecord(coordinates, record.key, record.value, record.headers), catalog)
        if isinstance(admitted, Undeliverable):
            self._dead_letters.labels(record.topic, admitted.reason).inc()
            canonical("request_dead_lettered", topic=record.topic, offset=record.offset, why=admitted.message)
            return dead_letter(record, admitted.reason, admitted.message)
        if isinstance(admitted, RunStarted):
            admitted = await self._with_claim_check(admitted)
        self._count(admitted)
        return run_record(EVENTS, admitted)

    async def _with_claim_check(self, started: RunStarted) -> RunStarted | RunRejected:
        try:
            stored = await self._outputs.store_output(started.input.value)
        except BlobUnavailableError as error:
            detail = ErrorDetail(code=ErrorCode.INTERNAL, message=f"input: {reason(error)}", retryable=True)
            fields = started.model_dump(include=set(RunRejected.model_fields) - {"type"})
            return RunRejected(**fields, pipeline=started.graph.pipeline, error=detail)
        return started if stored.ref is None else started.model_copy(update={"input": stored})

    def _count(self, admitted: RunStarted | RunRejected) -> None:
        if isinstance(admitted, RunStarted):
            self._requests.labels(admitted.graph.pipeline, admitted.priority).inc()
            canonical(
                "run_started",
                run_id=admitted.run_id,
                tenant=admitted.tenant,
                pipeline=admitted.graph.pipeline,
                priority=admitted.priority,
            )
        else:
            canonical(
                "run_rejected",
                run_id=admitted.run_id,
                tenant=admitted.tenant,
                code=admitted.error.code,
                why=admitted.error.message,
            )


class Dispatch:
    """Turns ready steps into tasks, or into the event that completes, skips or fails them. A stream handler."""

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
        self._dead_letters = metrics.counter(DEAD_LETTERS_TOTAL)
        self._outstanding: defaultdict[str, Outstanding] = defaultdict(Outstanding)
        self._turn = 0

    async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
        """What each record becomes; the stream appends it before its commit passes the record."""
        return [(record, await self._on_record(record)) for record in records]

    def on_worker_statuses(self, statuses: Sequence[WorkerStatus]) -> None:
        """Learns from the live workers how far each task partition is done."""
        by_topic: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for status in statuses:
            queue = self._catalog().queues.get((status.model_class, status.backend))
            if queue is not None:
                by_topic[queue.topic].update(status.committed)
        for topic, committed in by_topic.items():
            self.outstanding(topic).reported(committed)

    def outstanding(self, topic: str) -> Outstanding:
        """The tasks that a task topic holds."""
        return self._outstanding[topic]

    async def _on_record(self, record: Record) -> Sequence[Outgoing]:
        self._clock.observe(record.timestamp)
        try:
            ready = StepReady.model_validate_json(record.value or b"")
        except ValidationError as error:
            return self._undecodable(record, reason(error))
        try:
            return [await self._dispatch(ready)]
        except ExpressionError as error:
            return [self._event(steps.failed(ready, ErrorCode.INVALID_INPUT, str(error)))]
        except BlobMissingError as error:
            return [self._event(steps.failed(ready, ErrorCode.INTERNAL, reason(error)))]
        except BlobUnavailableError as error:
            return [self._event(steps.failed(ready, ErrorCode.INTERNAL, reason(error), retryable=True))]

    async def _dispatch(self, ready: StepReady) -> Outgoing:
        step, names = ready.step, ready.step.reads
        request = await self._outputs.load_output(ready.input) if ready.input is not None else None
        outputs = {name: await self._outputs.load_output(output) for name, output in ready.outputs.items()}
        if step.when is not None and not compile_condition(step.when, names).evaluate(request, outputs):
            return self._event(steps.skipped(ready))
        written = step.input if ready.target.model_class or step.kind is not StepKind.MODEL else ready.target.value
        value = compile_template(written, names).evaluate(request, outputs)
        stored = await self._outputs.store_output(value)
        if ready.target.model_class is None:
            return self._event(steps.completed(ready, stored))
        return self._task(ready, stored)

    def _task(self, ready: StepReady, stored: Output) -> Outgoing:
        queue = steps.route(ready, self._catalog().queues)
        if queue is None:
            wanted = f"{ready.target.model_class}.{ready.target.backend or '*'}"
            message = f"no backend {wanted!r} in the live configuration"
            return self._event(steps.failed(ready, ErrorCode.ENGINE_UNAVAILABLE, message))
        outstanding = self.outstanding(queue.topic)
        partition = place(queue.lanes.of(ready.priority), ready.session, outstanding.of, self._turn)
        self._turn += 1
        task = steps.task(ready, queue, stored.value, stored.ref)
        key, task_id = ready.session or ready.run_id, {headers.TASK_ID: ready.task_id}
        return run_record(queue.topic, task, key=key, partition=partition, more=task_id)

    def _event(self, event: StepEvent) -> Outgoing:
        return run_record(EVENTS, event)

    def _undecodable(self, record: Record, why: str) -> Sequence[Outgoing]:
        """A step whose record cannot be read fails at once: its run must not wait for the deadline."""
        self._dead_letters.labels(record.topic, DeadLetterReason.UNDECODABLE).inc()
        canonical("dead_lettered", topic=record.topic, partition=record.partition, offset=record.offset, why=why)
        letter = dead_letter(record, DeadLetterReason.UNDECODABLE, why)
        failed = undecodable_step(record)
        return [letter] if failed is None else [letter, self._event(failed)]


def undecodable_step(record: Record) -> StepFailed | None:
    """The failure of the step that a record's headers name; None when they name none."""
    task_id, tenant = record.header(headers.TASK_ID), record.header(headers.TENANT)
    try:
        run_id, step, attempt = ids.parse_task_id(task_id or "")
    except ValueError:
        return None
    detail = ErrorDetail(code=ErrorCode.INTERNAL, message="the step's record could not be read", step=step)
    return StepFailed(run_id=run_id, tenant=tenant or "default", step=step, attempt=attempt, error=detail)
