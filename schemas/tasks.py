"""What a worker executes."""

from pydantic import Field

from schemas.base import BlobRef, Contract, Json, LogTime, Priority, RunMessage


class Price(Contract):
    """What a backend costs; all that apply are added."""

    replica_hour_usd: float = Field(default=0.0, ge=0, description="Per replica and hour, shared by its busy slots.")
    input_per_mtok_usd: float = Field(default=0.0, ge=0)
    output_per_mtok_usd: float = Field(default=0.0, ge=0)
    call_usd: float = Field(default=0.0, ge=0)


class InferenceTask(RunMessage):
    """One model call: resolved, priced, placed in a lane. Header `task-id` names it even when this cannot be read."""

    task_id: str = Field(description="`<run_id>/<step path>#<attempt>`.")
    pipeline: str
    step: str
    attempt: int = Field(ge=1)
    fallback: int = Field(default=0, ge=0)
    model_class: str
    backend: str
    price: Price = Field(default_factory=Price)
    lane: Priority
    input: Json = None
    input_ref: BlobRef | None = Field(default=None, description="Where the input is, when it is large.")
    session: str | None = None
    sensitivity: str = "internal"
    variant: str | None = None
    stream: bool | None = Field(default=None, description="Whether the text is published as it comes.")
    deadline_at: LogTime
    step_deadline_at: LogTime
