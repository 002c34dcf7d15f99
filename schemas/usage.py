"""What a step used and what it cost; one usage record a run."""

from pydantic import Field

from schemas.base import Contract, LogTime, Milliseconds, RunMessage, RunStatus


class TokenUsage(Contract):
    """Tokens of one attempt, as its engine counted them."""

    input_tokens: int = Field(default=0, ge=0, description="Prompt tokens, cached ones included.")
    cached_tokens: int = Field(default=0, ge=0, description="Prompt tokens served from the prefix cache.")
    output_tokens: int = Field(default=0, ge=0)


class StepCost(TokenUsage):
    """All attempts of one step."""

    model_class: str | None = None
    backend: str | None = None
    attempts: int = Field(default=0, ge=0)
    service_ms: Milliseconds = 0.0
    cost_usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class UsageRecord(RunMessage):
    """The bill of one run."""

    usage_id: str = Field(description="uuid5(run id): a repeat is a no-op.")
    request_id: str
    pipeline: str
    pipeline_version: int | None = None
    status: RunStatus
    cost_usd: float = Field(ge=0)
    by_step: dict[str, StepCost] = Field(default_factory=dict)
    finished_at: LogTime
