"""What the aggregator tells the orchestrator: this step's needs are met."""

from pydantic import Field

from schemas.base import LogTime, Output, Priority, RunMessage
from schemas.graphs import Step, Target


class StepReady(RunMessage):
    """One attempt of one step may be dispatched. Self-contained."""

    task_id: str = Field(description="`<run_id>/<step path>#<attempt>`.")
    pipeline: str
    step: Step
    target: Target = Field(description="The link of the step's chain to take.")
    fallback: int = Field(ge=0, description="Index of that link.")
    attempt: int = Field(ge=1)
    input: Output | None = Field(default=None, description="The request's input, if an expression names it.")
    outputs: dict[str, Output] = Field(default_factory=dict, description="Outputs the expressions name, by step.")
    priority: Priority
    session: str | None = None
    sensitivity: str = "internal"
    variant: str | None = None
    deadline_at: LogTime
    step_deadline_at: LogTime
    ready_at: LogTime = Field(description="Log time of the event that made it ready.")
