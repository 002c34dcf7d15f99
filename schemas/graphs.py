"""A pipeline as a run carries it: resolved once at admission, self-contained ever after."""

from enum import StrEnum

from pydantic import Field

from schemas.base import Contract, Json


class StepKind(StrEnum):
    """Who completes a step: a worker, or the orchestrator itself."""

    MODEL = "model"
    GATE = "gate"
    VALUE = "value"


class OnFailure(StrEnum):
    """What a step's failure does to its run."""

    FAIL = "fail"
    CONTINUE = "continue"


class Target(Contract):
    """Where one link of a step's chain goes: a model class (and perhaps a backend), or a value."""

    model_class: str | None = None
    backend: str | None = Field(default=None, description="None: dispatch chooses.")
    value: Json = Field(default=None, description="A template the orchestrator evaluates, when there is no class.")


class Step(Contract):
    """One node of the graph."""

    id: str
    kind: StepKind
    input: Json = Field(default=None, description="Template: a model step's input, a gate's or value's expression.")
    when: str | None = Field(default=None, description="CEL; false skips the step.")
    needs: tuple[str, ...] = Field(default=(), description="Steps that must be over first: references and `after`.")
    reads: tuple[str, ...] = Field(default=(), description="Steps whose outputs the expressions name.")
    reads_input: bool = Field(default=True, description="Whether an expression names the request's input.")
    chain: tuple[Target, ...] = Field(default=(), description="The step's own target, then its fallbacks.")
    on_failure: OnFailure = OnFailure.FAIL
    timeout_ms: int | None = Field(default=None, gt=0)
    max_attempts: int = Field(default=3, ge=1, description="Per link of the chain.")
    stream: bool | None = Field(default=None, description="Whether its text is published as it comes.")


class Graph(Contract):
    """A pipeline, resolved: what the fold walks."""

    pipeline: str
    version: int
    steps: tuple[Step, ...]
    output: Json = Field(description="The output mapping: a template.")
    output_reads: tuple[str, ...] = Field(default=(), description="Steps whose outputs the mapping names.")
