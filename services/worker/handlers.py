"""What becomes of a task: refused or run, and reported. Nothing here knows of slots, lanes or offsets."""

import asyncio
import time
from asyncio import Future, Task
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from schemas import headers
from schemas.base import Json, LogTime, Output, Priority
from schemas.errors import DeadLetterReason
from schemas.events import StepCompleted, StepFailed
from schemas.models import Queue
from schemas.tasks import InferenceTask
from schemas.topics import EVENTS
from schemas.usage import TokenUsage
from services.chassis.blobs import BlobMissingError, BlobUnavailableError, Outputs
from services.chassis.clock import LogClock
from services.chassis.kafka.dead_letters import dead_letter
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import Producer, Record
from services.chassis.logging import log, reason
from services.chassis.tracing import Tracer
from services.worker.circuit import Circuit
from services.worker.claims import Claims
from services.worker.domain import reports
from services.worker.domain.breaker import Tally
from services.worker.domain.engine import (
    NO_TOKENS,
    Call,
    CallerFault,
    DeadlineExceeded,
    Engine,
    EngineEnded,
    EngineError,
    EngineFailed,
    EngineOverloaded,
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.domain.ports import Answer, Claim, Done
from services.worker.domain.retry_budget import RetryBudget
from services.worker.engine_life import EngineLife
from services.worker.hearing import hearing
from services.worker.limiter import Limiter
from services.worker.patience import stopped
from services.worker.rest import Rest
from services.worker.solitude import Solitude
from services.worker.spans import spans
from services.worker.telemetry import Telemetry
from services.worker.text_stream import TextStream

GRACE_S = 0.1
"""Past the last deadline of a batch: engines answer call by call when time is up, this limit stops what does not."""
KEEP_DONE_S = 10.0
"""Past the step's deadline, after which a repeat is dropped as expired."""

DIED = "the worker died of this task every time, at last while it ran nothing else"


class Flight:
    """One engine call under way, until it has answered, its time is up, or nobody waits for its answers any more."""

    def __init__(self, work: "Task[Sequence[Outcome]]", attempts: Sequence["Attempt"], limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._attempts = attempts
        self._ended: Future[None] = loop.create_future()
        self._limit = loop.call_later(limit_s, self._end)
        work.add_done_callback(self._end)

    async def wait(self) -> None:
        """Until it has ended. The engine may work on then: it is for the caller to stop it."""
        try:
            await self._ended
        finally:
            self._limit.cancel()

    def abort_if_over(self) -> None:
        """Ends it when nobody waits for any of its answers."""
        if all(attempt.over for attempt in self._attempts):
            self._end()

    def _end(self, _: object = None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


@dataclass(slots=True, eq=False)
class Attempt:
    """A task on this worker, from its delivery until its offsets may be passed."""

    task: InferenceTask
    task_at: LogTime
    lane: Priority
    """The lane it came by."""
    over: bool = False
    """Its run has ended: whatever it yields is dropped."""
    input: Json = None
    fault: EngineError | None = None
    """Why its input could not be had."""
    flight: Flight | None = None

    @property
    def claim(self) -> Claim:
        """What a worker must hold to run it."""
        task = self.task
        return Claim(task.run_id, task.step, task.attempt, task.deadline_at)

    def end_run(self) -> None:
        """The run is over: the engine need not go on."""
        self.over = True
        if self.flight is not None:
            self.flight.abort_if_over()


class Report(NamedTuple):
    """What is to be said of an attempt, and what it took."""

    attempt: Attempt
    event: StepCompleted | StepFailed
    took: reports.Effort


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all queues of a worker share."""

    producer: Producer
    clock: LogClock
    outputs: Outputs
    claims: Claims
    monotonic: Callable[[], float] = time.monotonic
    solitude: Solitude = field(default_factory=Solitude)
    rest: Rest = field(default_factory=Rest)
    tracer: Tracer | None = None
    text: TextStream | None = None
    """Where text of steps that stream goes; None: nowhere."""
    age_s: float = 0.0
    """Of the process, when this was made."""


class TaskHandler:
    """The tasks of one queue, by its engine."""

    def __init__(
        self,
        queue: Queue,
        engine: Engine,
        around: Surroundings,
        *,
        life: EngineLife,
        circuit: Circuit,
        limiter: Limiter,
        telemetry: Telemetry,
    ) -> None:
        self._queue = queue
        self._engine = engine
        self._life = life
        self._circuit = circuit
        self._limiter = limiter
        self._around = around
        self._telemetry = telemetry
        self._budget = RetryBudget()
        self._abandoned: set[Task[Sequence[Outcome]]] = set()

    async def claim(self, attempts: Sequence[Attempt]) -> Sequence[Answer]:
        """Who may run: one answer each."""
        return await self._around.claims.claim([attempt.claim for attempt in attempts])

    async def isolate(self, attempt: Attempt) -> bool:
        """Before it runs alone; False when it is another worker's by now."""
        return await self._around.claims.isolate(attempt.claim)

    def left_s(self, attempt: Attempt) -> float:
        """Seconds until the step's time is up; negative after."""
        return (attempt.task.step_deadline_at - self._now()) / 1_000

    def refusal(self, attempt: Attempt) -> EngineError | None:
        """Why it is not even worth a slot; None when it is."""
        if self.left_s(attempt) <= 0:
            return DeadlineExceeded("the step's time was up before it began")
        return self._cut_off() if self._circuit.room(1) == 0 else None

    def _cut_off(self) -> EngineError:
        return EngineUnavailable(f"the circuit breaker of {self._queue.label} is {self._circuit.state}")

    async def execute(self, attempts: Sequence[Attempt]) -> list[Report]:
        """Runs them in one engine call: a report for each whose run is not over."""
        try:
            return await self._execute(attempts)
        except Exception as error:
            # A bug of ours must not come again with these tasks for ever, nor take their neighbours down.
            log.error("task_handler_failed", queue=self._queue.label, exc_info=error)
            fault = EngineError(f"the worker failed: {type(error).__name__}")
            return [self.refuse(attempt, fault) for attempt in attempts if not attempt.over]

    async def _execute(self, attempts: Sequence[Attempt]) -> list[Report]:
        if any(attempt.task.input_ref is not None for attempt in attempts):
            await asyncio.gather(*map(self._load, attempts))
        refused, calls = [], []
        for attempt in attempts:
            call = self._call(attempt)
            if attempt.over:
                self.drop(attempt, "dropped")
            elif isinstance(call, EngineError):
                refused.append(self.refuse(attempt, call))
            else:
                calls.append((attempt, call))
        room = self._circuit.room(len(calls))
        refused += [self.refuse(attempt, self._cut_off()) for attempt, _ in calls[room:]]
        return refused + (await self._infer(*zip(*calls[:room], strict=True)) if room else [])

    def refuse(self, attempt: Attempt, fault: EngineError) -> Report:
        """The report of a task that never reaches the engine."""
        return self._failed(attempt, self._took(attempt, self._now()), fault)

    async def publish(self, found: Sequence[Report]) -> None:
        """Appends the events and marks the attempts done; returns when both are acknowledged."""
        if not found:
            return
        appended = await self._around.producer.send_all([run_record(EVENTS, report.event) for report in found])
        self._around.clock.observe(appended[-1].timestamp)
        await self._around.claims.finish([self._done(report.attempt) for report in found])
        for report in found:
            self._telemetry.ended(report.attempt.task, report.event, report.took)
            if self._around.tracer is not None:
                self._around.tracer.record(spans(report.attempt.task, report.event, report.took))

    def drop(self, attempt: Attempt, outcome: Literal["dropped", "repeated"]) -> None:
        """Nothing is said of it: its run is over, or it was done before."""
        self._around.claims.drop(attempt.claim)
        self._telemetry.dropped(attempt.task, outcome)

    def disown(self, attempt: Attempt) -> None:
        """Its lease ends by itself, as if its worker had died."""
        self._around.claims.drop(attempt.claim)

    async def dead_letter(self, record: Record, lane: Priority, why: str) -> None:
        """Puts a record that is no task aside, and fails the step its headers name, if they name one."""
        letters = [dead_letter(record, DeadLetterReason.UNDECODABLE, why)]
        event = reports.undecodable(
            record.header(headers.TASK_ID), record.header(headers.TENANT), record.timestamp, why
        )
        if event is not None:
            letters.append(run_record(EVENTS, event))
        await self._around.producer.send_all(letters)
        self._telemetry.dead_lettered(lane, record, DeadLetterReason.UNDECODABLE, why)

    async def put_aside(self, record: Record, attempt: Attempt) -> None:
        """Dead-letters a task that died alone on a worker, and fails its step for good."""
        task = attempt.task
        letter = dead_letter(record, DeadLetterReason.POISON, DIED, task_id=task.task_id, attempt=task.attempt)
        await self._around.producer.send_all([letter])
        self._telemetry.dead_lettered(attempt.lane, record, DeadLetterReason.POISON, DIED)
        await self.publish([self.refuse(attempt, EngineFailed(DIED, retryable=False))])

    async def _load(self, attempt: Attempt) -> None:
        """Fetches an input that travelled by claim check."""
        if attempt.task.input_ref is None:
            return
        try:
            attempt.input = await self._around.outputs.load_output(Output(ref=attempt.task.input_ref))
        except (BlobMissingError, ValueError) as error:
            attempt.fault = EngineError(f"input_ref: {reason(error)}")
        except BlobUnavailableError as error:
            attempt.fault = _passing(f"input_ref: {reason(error)}")

    def _call(self, attempt: Attempt) -> Call | EngineError:
        task, left_s = attempt.task, self.left_s(attempt)
        given = task.input if task.input_ref is None else attempt.input
        if attempt.fault is not None:
            return attempt.fault
        if left_s <= 0:
            return DeadlineExceeded("the step's time was up before it began")
        if not isinstance(given, dict):
            return CallerFault("input: must be an object")
        text = self._around.text
        pass_on = text.begin(task) if text is not None and task.stream else None
        return Call(
            task.task_id, task.run_id, task.step, task.attempt, task.tenant, task.session, given, left_s,
            attempt.lane, on_text=hearing(self._telemetry.spoke, self._around.monotonic, pass_on),
        )  # fmt: skip

    async def _infer(self, attempts: Sequence[Attempt], calls: Sequence[Call]) -> list[Report]:
        started_at, began = self._now(), self._around.monotonic()
        trial, tally = self._circuit.begin(len(calls)), Tally()
        try:
            outcomes = await self._outcomes(attempts, calls)
            waited_for = zip(attempts, outcomes, strict=True)
            tally = Tally.of(outcome for attempt, outcome in waited_for if not attempt.over)
        finally:
            self._circuit.end(trial, tally)
        service_ms = (self._around.monotonic() - began) * 1_000
        self._learn(outcomes)
        found = []
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            if attempt.over:
                self.drop(attempt, "dropped")
                continue
            usage = outcome.usage if isinstance(outcome, Result) else NO_TOKENS
            took = self._took(attempt, started_at, service_ms, usage)
            found.append(await self._report(attempt, took, outcome))
        return found

    async def _outcomes(self, attempts: Sequence[Attempt], calls: Sequence[Call]) -> Sequence[Outcome]:
        """The engine's answers, whatever it does: one per call."""
        work = asyncio.create_task(self._engine.infer(calls))
        flight = Flight(work, attempts, max(call.deadline_s for call in calls) + GRACE_S)
        for attempt in attempts:
            attempt.flight = flight
        try:
            await flight.wait()
            return self._answered(work, calls)
        finally:
            for attempt in attempts:
                attempt.flight = None
            if not (work.done() or await stopped(work)):
                self._abandon(work)

    def _answered(self, work: "Task[Sequence[Outcome]]", calls: Sequence[Call]) -> Sequence[Outcome]:
        fault: EngineError = DeadlineExceeded("no answer in time")
        if work.done():
            try:
                outcomes = work.result()
                if len(outcomes) == len(calls):
                    return outcomes
                fault = EngineFailed(f"the engine answered {len(outcomes)} of {len(calls)} calls")
            except EngineError as error:
                fault = error
            except (Exception, asyncio.CancelledError) as error:
                fault = self._broke(error)
        return [fault] * len(calls)

    def _abandon(self, work: "Task[Sequence[Outcome]]") -> None:
        """The engine goes on with calls it was told to stop: they keep no slot, but many of them are its end."""
        log.error("engine_does_not_stop", queue=self._queue.label, calls=len(self._abandoned) + 1)
        self._abandoned.add(work)
        work.add_done_callback(self._abandoned.discard)
        if len(self._abandoned) >= self._queue.slots:
            self._life.lose(f"{len(self._abandoned)} calls do not stop")

    async def _report(self, attempt: Attempt, took: reports.Effort, outcome: Outcome) -> Report:
        if isinstance(outcome, EngineError):
            return self._failed(attempt, took, outcome)
        try:
            output = await self._around.outputs.store_output(outcome.output)
        except BlobUnavailableError as error:
            return self._failed(attempt, took, _passing(f"output: {reason(error)}"))
        except ValueError:
            return self._failed(attempt, took, EngineFailed("the engine's output is no JSON", retryable=False))
        return Report(attempt, reports.completed(attempt.task, took, output, self._queue.slots), took)

    def _failed(self, attempt: Attempt, took: reports.Effort, error: EngineError) -> Report:
        # Of an engine that has ended nothing is asked again: there is none that a budget could spare.
        retryable = error.retryable and (isinstance(error, EngineEnded) or self._budget.spend())
        detail = reports.error_detail(attempt.task.step, error.code, str(error), retryable=retryable)
        return Report(attempt, reports.failed(attempt.task, took, detail, self._queue.slots), took)

    def _learn(self, outcomes: Sequence[Outcome]) -> None:
        """What these outcomes say about the engine."""
        for outcome in outcomes:
            self._budget.attempted()
            if isinstance(outcome, Result):
                self._life.answered()
            elif isinstance(outcome, EngineEnded):
                self._life.lose(str(outcome))
            elif outcome.shed:
                self._life.suspect(outcome.retry_after_s)
            if isinstance(outcome, EngineOverloaded):
                self._limiter.refused()

    def _broke(self, error: BaseException) -> EngineError:
        """An engine that raises what it should not is a bug, and fails only these calls."""
        log.error("engine_broke_its_promise", queue=self._queue.label, exc_info=error)
        return EngineFailed(f"the engine raised {type(error).__name__}")

    def _took(
        self, attempt: Attempt, started_at: LogTime, service_ms: float = 0.0, usage: TokenUsage = NO_TOKENS
    ) -> reports.Effort:
        return reports.effort(attempt.task_at, started_at, self._life.ready_at or 0, service_ms, usage)

    def _done(self, attempt: Attempt) -> Done:
        return Done(attempt.claim, max(0.0, self.left_s(attempt)) + KEEP_DONE_S)

    def _now(self) -> LogTime:
        now = self._around.clock.now_ms()
        assert now is not None, "the clock knows the time since the first record"
        return now


def _passing(message: str) -> EngineError:
    """A fault that another attempt may not meet."""
    error = EngineError(message)
    error.retryable = True
    return error
