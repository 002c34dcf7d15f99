"""What a client reads from the response topic."""

from pydantic import Field

from schemas.base import Contract, Json, Message, Milliseconds, RunStatus, StepStatus
from schemas.errors import ErrorDetail
from schemas.usage import StepCost

MAX_INLINE_RESPONSE_BYTES = 512 * 1024
"""A larger response ends the run as failed / content_too_large."""


class StepReport(Contract):
    """How one step of the run went."""

    status: StepStatus = Field(description="Terminal, or `pending`/`ready` if the run ended first.")
    attempts: int = Field(default=0, ge=0, description="Attempts dispatched, over all fallbacks.")
    model_class: str | None = Field(
        default=None, description="Of the attempt that decided; none for gates and values."
    )
    backend: str | None = Field(default=None, description="Of the attempt that decided.")
    fallback: int = Field(default=0, ge=0, description="0 = as written; n = the nth fallback.")
    error: ErrorDetail | None = Field(default=None, description="The last error of a failed step.")


class Timing(Contract):
    """Where the time went, along the critical path. The four parts sum to the total."""

    total_ms: Milliseconds = Field(description="Request's log time to the deciding record's log time.")
    queue_ms: Milliseconds = Field(default=0.0, description="Waiting in task topics and for slots.")
    cold_ms: Milliseconds = Field(default=0.0, description="Waiting for a worker to become ready.")
    service_ms: Milliseconds = Field(default=0.0, description="In engines.")
    coordination_ms: Milliseconds = Field(default=0.0, description="The rest: the plane's own share.")
    critical_path: tuple[str, ...] = Field(default=(), description="Steps that decided the total, in order.")


class Cost(Contract):
    """What the run cost."""

    cost_usd: float = Field(default=0.0, ge=0)
    by_step: dict[str, StepCost] = Field(default_factory=dict)


class InferenceResponse(Message):
    """The one outcome of a request. Every copy ever published is byte-identical."""

    response_id: str = Field(description="uuid5(run id).")
    request_id: str
    run_id: str
    tenant: str
    pipeline: str
    pipeline_version: int | None = Field(default=None, description="None when the pipeline is unknown.")
    status: RunStatus
    output: Json = Field(default=None, description="The pipeline's output mapping; null unless it was reached.")
    missing: tuple[str, ...] = Field(default=(), description="Steps a partial run had to do without.")
    error: ErrorDetail | None = None
    steps: dict[str, StepReport] = Field(default_factory=dict)
    timing: Timing
    usage: Cost = Field(default_factory=Cost)
    variants: dict[str, str] = Field(default_factory=dict)
    session: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    started_at: str = Field(description="ISO 8601, UTC: log time of the request.")
    finished_at: str = Field(description="ISO 8601, UTC: log time of the record that decided.")
