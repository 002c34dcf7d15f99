"""The facts of a run, in the past tense: the events topic is the state of every run."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from schemas.base import Contract, LogTime, Milliseconds, Output, Priority, RunMessage
from schemas.errors import ErrorDetail
from schemas.graphs import Graph
from schemas.responses import InferenceResponse
from schemas.usage import TokenUsage, UsageRecord


class RequestCoordinates(Contract):
    """Where a request's bytes are, and when the broker took them."""

    topic: str
    partition: int = Field(ge=0)
    offset: int = Field(ge=0)
    log_time: LogTime


class RunStarted(RunMessage):
    """Admission accepted a request. Everything the run will ever need is in here."""

    type: Literal["run-started"] = "run-started"
    request_id: str
    request: RequestCoordinates
    body_digest: str = Field(description="sha256 of what identifies the request: same id, other digest = conflict.")
    response_topic: str
    input: Output = Field(description="The request's input.")
    priority: Priority
    session: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    correlation_id: str | None = None
    sensitivity: str = "internal"
    variants: dict[str, str] = Field(default_factory=dict)
    deadline_at: LogTime
    graph: Graph
    graph_digest: str = Field(description="Runs with the same digest share one graph in memory.")
    min_fold: int = Field(default=1, description="The oldest fold that understands this run.")


class RunRejected(RunMessage):
    """Admission refused a request: it opens and closes a run, remembered like any other."""

    type: Literal["run-rejected"] = "run-rejected"
    request_id: str
    request: RequestCoordinates
    body_digest: str
    response_topic: str
    pipeline: str
    session: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    correlation_id: str | None = None
    error: ErrorDetail
    min_fold: int = 1


class StepEvent(RunMessage):
    """What happened to one attempt of one step."""

    step: str
    attempt: int = Field(ge=1)
    fallback: int = Field(default=0, ge=0, description="Index into the step's chain.")


class AttemptEvent(StepEvent):
    """An attempt that ran, or was to run, somewhere."""

    model_class: str | None = Field(default=None, description="None: the orchestrator did it itself.")
    backend: str | None = None
    task_at: LogTime | None = Field(default=None, description="Log time of the task record, if there was one.")
    queue_ms: Milliseconds | None = Field(default=None, description="From the task's record to the engine's start.")
    service_ms: Milliseconds = 0.0
    cold_ms: Milliseconds = 0.0
    usage: TokenUsage = Field(default_factory=TokenUsage)
    cost_usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class StepCompleted(AttemptEvent):
    """An attempt succeeded; the first one of a step wins."""

    type: Literal["step-completed"] = "step-completed"
    output: Output


class StepFailed(AttemptEvent):
    """An attempt failed; `error.retryable` says whether another may help."""

    type: Literal["step-failed"] = "step-failed"
    error: ErrorDetail


class StepSkipped(StepEvent):
    """`when` was false."""

    type: Literal["step-skipped"] = "step-skipped"


class RunCancelled(RunMessage):
    """Somebody asked for the run to stop."""

    type: Literal["run-cancelled"] = "run-cancelled"
    cancelled_by: str = Field(description="Who asked.")


class RunTicked(RunMessage):
    """Time passed: every timer of the run that is due at this record's stamp applies. Too early: nothing."""

    type: Literal["run-ticked"] = "run-ticked"


class RunFinished(RunMessage):
    """The outcome, whole. The first one in the log is the answer."""

    type: Literal["run-finished"] = "run-finished"
    response_topic: str
    correlation_id: str | None = None
    response: InferenceResponse
    usage: UsageRecord


Event = RunStarted | RunRejected | StepCompleted | StepFailed | StepSkipped | RunCancelled | RunTicked | RunFinished
EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
