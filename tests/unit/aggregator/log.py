"""A hand-written log: folds what a test appends, at the stamps the test gives."""

from typing import Any, TypeVar

from schemas import ids
from schemas.base import Output, Priority, RunStatus
from schemas.errors import ErrorCode, ErrorDetail
from schemas.events import (
    Event,
    RequestCoordinates,
    RunCancelled,
    RunRejected,
    RunStarted,
    RunTicked,
    StepCompleted,
    StepFailed,
    StepSkipped,
)
from schemas.graphs import Graph, OnFailure, Step, StepKind, Target
from schemas.usage import TokenUsage
from services.aggregator.domain.decisions import Decision, Dispatch
from services.aggregator.domain.fold import LogRecord, fold
from services.aggregator.domain.outcomes import Mapped, finish
from services.aggregator.domain.state import Partition, Run

WINDOW_MS = 3_600_000
T0 = 1_700_000_000_000
DEADLINE_MS = 30_000

D = TypeVar("D", bound=Decision)


def model(step_id: str, *needs: str, **more: Any) -> Step:
    """A step on class `llm`."""
    chain = more.pop("chain", (Target(model_class="llm"),))
    return Step(id=step_id, kind=StepKind.MODEL, needs=needs, reads=needs, chain=chain, **more)


def gate(step_id: str, *needs: str) -> Step:
    return Step(id=step_id, kind=StepKind.GATE, input="${true}", needs=needs, reads=needs, chain=(Target(),))


def graph(*steps: Step) -> Graph:
    return Graph(pipeline="ask", version=3, steps=steps, output={}, output_reads=tuple(step.id for step in steps))


DIAMOND = graph(model("a"), model("b"), model("c", "a", "b"))
OPTIONAL = graph(model("a", on_failure=OnFailure.CONTINUE), model("b", "a"))


def started(
    steps: Graph = DIAMOND, request_id: str = "r1", *, digest: str = "d1", log_time: int = T0, **more: Any
) -> RunStarted:
    fields: dict[str, Any] = {
        "run_id": ids.run_id("acme", request_id),
        "tenant": "acme",
        "request_id": request_id,
        "request": RequestCoordinates(topic="inference-requests", partition=0, offset=7, log_time=log_time),
        "body_digest": digest,
        "response_topic": "inference-responses",
        "input": Output(value={"question": "why"}),
        "priority": Priority.INTERACTIVE,
        "deadline_at": log_time + DEADLINE_MS,
        "graph": steps,
        "graph_digest": str(hash(steps.model_dump_json())),
    }
    return RunStarted(**{**fields, **more})


def rejected(request_id: str = "r1", digest: str = "d1") -> RunRejected:
    fields = started(request_id=request_id, digest=digest).model_dump(
        include=set(RunRejected.model_fields) - {"type"}
    )
    error = ErrorDetail(code=ErrorCode.UNKNOWN_PIPELINE, message="no such pipeline")
    return RunRejected(**fields, pipeline="nope", error=error)


class Log:
    """One events partition, its fold, and everything decided so far."""

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self.partition = Partition.empty(window_ms)
        self.now = T0
        self.decisions: list[Decision] = []
        self.records: list[tuple[int, Event]] = []

    def append(self, event: Event, after_ms: int = 1) -> tuple[Decision, ...]:
        """Folds one more record, `after_ms` later than the last; returns what it decided."""
        self.now += after_ms
        self.records.append((self.now, event))
        self.partition, decided = fold(self.partition, LogRecord(self.now, event))
        self.decisions.extend(decided)
        return decided

    def start(self, steps: Graph = DIAMOND, **more: Any) -> tuple[Decision, ...]:
        return self.append(started(steps, **more))

    def done(
        self, step: str, value: Any = "ok", *, attempt: int = 1, after_ms: int = 1, **more: Any
    ) -> tuple[Decision, ...]:
        fields = {"model_class": "llm", "backend": "local", "task_at": self.now, "cost_usd": 0.5, **more}
        usage = TokenUsage(input_tokens=10, output_tokens=5)
        event = StepCompleted(
            run_id=self.run_id,
            tenant="acme",
            step=step,
            attempt=attempt,
            output=Output(value=value),
            usage=usage,
            **fields,
        )
        return self.append(event, after_ms)

    def fail(
        self, step: str, *, attempt: int = 1, retryable: bool = False, after_ms: int = 1
    ) -> tuple[Decision, ...]:
        error = ErrorDetail(code=ErrorCode.ENGINE_FAILED, message="broke", retryable=retryable)
        event = StepFailed(
            run_id=self.run_id,
            tenant="acme",
            step=step,
            attempt=attempt,
            error=error,
            model_class="llm",
            cost_usd=0.25,
        )
        return self.append(event, after_ms)

    def skip(self, step: str, attempt: int = 1) -> tuple[Decision, ...]:
        return self.append(StepSkipped(run_id=self.run_id, tenant="acme", step=step, attempt=attempt))

    def tick(self, after_ms: int) -> tuple[Decision, ...]:
        return self.append(RunTicked(run_id=self.run_id, tenant="acme"), after_ms)

    def cancel(self, run_id: str | None = None, after_ms: int = 1) -> tuple[Decision, ...]:
        return self.append(RunCancelled(run_id=run_id or self.run_id, tenant="acme", cancelled_by="ops"), after_ms)

    def finish(self) -> tuple[Decision, ...]:
        """Appends the outcome of the closing run, as the shell would."""
        return self.append(finish(self.run, Mapped({"answer": 42})))

    run_id = ids.run_id("acme", "r1")

    @property
    def run(self) -> Run:
        run = self.partition.open[self.run_id]
        assert isinstance(run, Run)
        return run

    @property
    def status(self) -> RunStatus | None:
        return self.run.outcome.status if self.run.outcome else None


def only(kind: type[D], decided: tuple[Decision, ...]) -> list[D]:
    """The decisions of one kind."""
    return [decision for decision in decided if isinstance(decision, kind)]


def dispatched(decided: tuple[Decision, ...]) -> list[str]:
    """`step#attempt` of every dispatch."""
    return [f"{decision.ready.step.id}#{decision.ready.attempt}" for decision in only(Dispatch, decided)]
