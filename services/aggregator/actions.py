"""What the fold decided, as records. Nothing here touches the state: it may wait, and be dropped, without harm."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from pydantic_core import from_json, to_json

from schemas import headers
from schemas.base import Json, LogTime, Output
from schemas.errors import DeadLetterReason, ErrorCode, ErrorDetail
from schemas.events import RequestCoordinates, RunStarted, StepFailed
from schemas.joins import StepReady
from schemas.responses import MAX_INLINE_RESPONSE_BYTES
from schemas.topics import EVENTS, JOINS, REQUESTS, USAGE
from services.aggregator.domain import outcomes
from services.aggregator.domain.decisions import DeadLetter, Decision, Dispatch, Finish, Publish
from services.aggregator.domain.fold import outputs_of
from services.aggregator.domain.outcomes import Mapped
from services.aggregator.domain.state import Run
from services.aggregator.spans import spans
from services.aggregator.telemetry import Telemetry
from services.aggregator.written import Written
from services.chassis.blobs import BlobMissingError, BlobUnavailableError, require_depth
from services.chassis.clock import LogClock
from services.chassis.expressions import ExpressionError, Template, known_template
from services.chassis.kafka.dead_letters import DeadLetters
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.records import fits
from services.chassis.kafka.types import Outgoing, Producer, Record
from services.chassis.logging import log, reason
from services.chassis.metrics import Metrics
from services.chassis.tracing import Tracer

BLOB_RETRY_S = 0.5

Decided = tuple[Record, Sequence[Decision]]
Requests = Mapping[RequestCoordinates, Record | None]


class OutputStore(Protocol):
    """Keeps large values by their content."""

    async def check_in(self, output: Output) -> Output:
        """By claim check, whatever its size. Raises BlobUnavailableError."""

    async def load_output(self, output: Output) -> Json:
        """Raises BlobMissingError or BlobUnavailableError."""


class RequestReader(Protocol):
    """Reads requests again."""

    async def fetch(self, coordinates: Collection[RequestCoordinates]) -> Requests:
        """Their records; None where there is none, any more or at all. Raises KafkaError."""


class RunStopper(Protocol):
    """Tells workers that nobody waits for a run any more. Best effort."""

    def stop_run(self, run_id: str, deadline_at: LogTime) -> None:
        """The deadline tells which life of the id is over."""


class Actions:
    """Turns decisions into the records that carry them out."""

    def __init__(
        self,
        *,
        clock: LogClock,
        producer: Producer,
        outputs: OutputStore,
        requests: RequestReader,
        stopper: RunStopper,
        metrics: Metrics,
        tracer: Tracer | None = None,
    ) -> None:
        self._clock = clock
        self._producer = producer
        self._outputs = outputs
        self._requests = requests
        self._stopper = stopper
        self._telemetry = Telemetry(metrics)
        self._tracer = tracer
        self.dead_letters = DeadLetters(metrics)
        self.dead_letters.expect((REQUESTS, EVENTS), DeadLetterReason)
        self.written = Written()
        self._finishing: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()
        """Runs of which workers know that they are over, until that is in the log."""

    async def act(self, decided: Sequence[Decided]) -> list[tuple[Record, list[Outgoing]]]:
        """What must be acknowledged before the commit passes each record."""
        refused = [d.request for _, decisions in decided for d in decisions if isinstance(d, DeadLetter)]
        requests = await self._requests.fetch(refused) if refused else {}
        return [(record, await self._act_on(record, decisions, requests)) for record, decisions in decided]

    async def stop(self) -> None:
        """Gives up outcomes that still wait for the store: the next owner closes those runs again."""
        tasks = list(self._finishing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._told.clear()
        self.written.clear()

    async def _act_on(self, record: Record, decisions: Sequence[Decision], requests: Requests) -> list[Outgoing]:
        outgoing: list[Outgoing] = []
        for decision in decisions:
            if isinstance(decision, Dispatch):
                outgoing.append(await self._ready(decision.ready))
            elif isinstance(decision, Finish):
                if isinstance(decision.run.started, RunStarted):
                    self._tell_workers(decision.run.run_id, decision.run.started.deadline_at)
                outgoing.extend(self._finish(decision.run, record.partition))
            elif isinstance(decision, Publish):
                outgoing.extend(self._publish(decision, record))
            else:
                outgoing.extend(self._refuse(decision, requests[decision.request]))
        return outgoing

    # A step -----------------------------------------------------------------------------------

    async def _ready(self, ready: StepReady) -> Outgoing:
        """Many small outputs may be too much for one record: then they all travel by claim check."""
        record = _ready_record(ready)
        if fits(record):
            return record
        try:
            inputs = ready.input and await self._outputs.check_in(ready.input)
            outputs = {name: await self._outputs.check_in(output) for name, output in ready.outputs.items()}
        except BlobUnavailableError as error:
            return _failed(ready, ErrorCode.INTERNAL, reason(error), retryable=True)
        record = _ready_record(ready.model_copy(update={"input": inputs, "outputs": outputs}))
        if fits(record):
            return record
        return _failed(ready, ErrorCode.CONTENT_TOO_LARGE, "the step's definition does not fit a record")

    def _tell_workers(self, run_id: str, deadline_at: LogTime) -> None:
        """Once; already when the end is decided, for it stands whoever appends it, and however late."""
        if run_id not in self._told:
            self._told.add(run_id)
            self._stopper.stop_run(run_id, deadline_at)

    # The outcome ------------------------------------------------------------------------------

    def _finish(self, run: Run, partition: int) -> list[Outgoing]:
        """The outcome; nothing yet when its output has to be read from the store, which may take its time."""
        if not outcomes.reaches_output(run):
            return [self._finished_record(run, Mapped(), partition)]
        started = run.started
        assert isinstance(started, RunStarted)
        template = known_template(started.graph.output, started.graph.output_reads)
        needed = outputs_of(run, started.graph.output_reads)
        if template.reads_input:
            needed = {**needed, "": started.input}
        if all(output.ref is None for output in needed.values()):
            values = {name: output.value for name, output in needed.items()}
            return [self._finished_record(run, _mapped(template, values), partition)]
        if run.run_id not in self._finishing:
            task = asyncio.create_task(self._finish_later(run, template, needed, partition))
            self._finishing[run.run_id] = task
            task.add_done_callback(lambda _: self._finishing.pop(run.run_id, None))
        return []

    async def _finish_later(self, run: Run, template: Template, needed: Mapping[str, Output], partition: int) -> None:
        """Appends the outcome when its output is there. Should this process end before, the run is closed again."""
        try:
            values = {name: await self._load(run, output) for name, output in needed.items()}
            mapped = _mapped(template, values)
        except (BlobMissingError, BlobUnavailableError) as error:
            mapped = _invalid(reason(error))
        await self._producer.send_all([self._finished_record(run, mapped, partition)])

    def _finished_record(self, run: Run, mapped: Mapped, partition: int) -> Outgoing:
        finished = outcomes.finish(run, mapped)
        record = run_record(EVENTS, finished, partition=partition)
        self.written.keep(record, finished)
        if len(record.value or b"") <= MAX_INLINE_RESPONSE_BYTES:
            return record  # and so the response in it is no larger
        size = len(to_json(finished.response))
        if size <= MAX_INLINE_RESPONSE_BYTES:
            return record
        too_large = Mapped(error=outcomes.too_large(size, MAX_INLINE_RESPONSE_BYTES))
        return run_record(EVENTS, outcomes.finish(run, too_large), partition=partition)

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
            value=self.written.take_response(record) or to_json(from_json(record.value or b"{}")["response"]),
            more={headers.MESSAGE_TYPE: "InferenceResponse", **correlation},
        )
        if decision.deadline_at is not None:
            self._tell_workers(finished.run_id, decision.deadline_at)
            self._told.discard(finished.run_id)
        self._telemetry.finished(finished)
        if self._tracer is not None:
            self._tracer.record(spans(decision.run, finished, record.timestamp))
        return [response, run_record(USAGE, finished.usage, key=finished.tenant)]

    # What cannot be joined --------------------------------------------------------------------

    def _refuse(self, decision: DeadLetter, request: Record | None) -> list[Outgoing]:
        """Dead-letters the request itself: a response would be a second one."""
        if request is None:
            log.warning("request_not_retained", topic=decision.request.topic, offset=decision.request.offset)
            return []
        return [self.dead_letters.letter(request, decision.reason, decision.message)]


def _ready_record(ready: StepReady) -> Outgoing:
    return run_record(JOINS, ready, more={headers.TASK_ID: ready.task_id})


def _failed(ready: StepReady, code: ErrorCode, message: str, *, retryable: bool = False) -> Outgoing:
    error = ErrorDetail(code=code, message=message, step=ready.step.id, retryable=retryable)
    event = StepFailed(
        run_id=ready.run_id,
        tenant=ready.tenant,
        traceparent=ready.traceparent,
        step=ready.step.id,
        attempt=ready.attempt,
        fallback=ready.fallback,
        error=error,
    )
    return run_record(EVENTS, event)


def _mapped(template: Template, values: Mapping[str, Json]) -> Mapped:
    """`values` holds outputs by step, and the request's input under the empty name."""
    try:
        value = template.evaluate(values.get(""), values)
        require_depth(value)
    except ExpressionError as error:
        return _invalid(str(error))
    except ValueError as error:
        return _invalid(reason(error))
    return Mapped(value)


def _invalid(why: str) -> Mapped:
    return Mapped(error=ErrorDetail(code=ErrorCode.INVALID_OUTPUT, message=f"output: {why}"))
