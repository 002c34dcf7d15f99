"""What users write in `pipelines/*.yaml`. Unknown keys are errors: a typo must not change a pipeline silently."""

from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from schemas.base import Identifier, Json, Name, Priority
from schemas.durations import Duration
from schemas.graphs import OnFailure
from schemas.requests import MAX_DEADLINE_MS

MAX_STEPS = 256
"""Steps of one pipeline: the join's state grows with it."""

Expression = Annotated[str, StringConstraints(min_length=1, max_length=16_384)]


class Written(BaseModel):
    """Something a person writes: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only what was written: it means the same when it is read again, and defaults stay ours to improve."""
        fields: dict[str, Any] = serialize(self)
        return {name: value for name, value in fields.items() if name in self.model_fields_set}


class FallbackSpec(Written):
    """What to try next: another backend, another model class, or a value."""

    backend: Name | None = None
    model_class: Name | None = None
    value: Json = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if not self.model_fields_set or self.model_fields_set > {"backend", "model_class"}:
            raise ValueError("a fallback names one of `backend`, `model_class`, `value`")
        if "value" in self.model_fields_set and len(self.model_fields_set) > 1:
            raise ValueError("a fallback with a `value` has nothing else")
        return self


class StepSpec(Written):
    """One step: exactly one of `model_class`, `gate`, `value` says what it is."""

    id: Identifier
    model_class: Name | None = None
    gate: Expression | None = Field(default=None, description="CEL in ${…}; false ends the run as `blocked`.")
    value: Json = Field(default=None, description="A template the orchestrator evaluates.")
    backend: Name | None = Field(default=None, description="Only this backend of the class.")
    input: Json = Field(default_factory=dict, description="Template of a model step's input.")
    when: Expression | None = Field(default=None, description="CEL in ${…}; false skips the step.")
    after: tuple[Identifier, ...] = Field(default=(), description="Steps to wait for without reading them.")
    fallback: tuple[FallbackSpec, ...] = Field(default=(), max_length=8)
    on_failure: OnFailure = OnFailure.FAIL
    timeout: Duration | None = None
    max_attempts: int = Field(default=3, ge=1, le=10)
    stream: bool = Field(default=False, description="Its text may be read as it comes, before the run has ended.")

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        kinds = self.model_fields_set & {"model_class", "gate", "value"}
        if len(kinds) != 1:
            raise ValueError("a step has exactly one of `model_class`, `gate`, `value`")
        if "model_class" not in kinds:
            stray = self.model_fields_set & {"input", "backend", "fallback", "timeout", "max_attempts", "stream"}
            if stray:
                raise ValueError(f"only a step with a `model_class` has {', '.join(sorted(stray))}")
        if "gate" in kinds and "on_failure" in self.model_fields_set:
            raise ValueError("a gate has no `on_failure`: one that cannot be evaluated fails the run")
        return self


class SLO(Written):
    """What a pipeline's callers are promised."""

    latency: Duration
    objective: float = Field(gt=0, lt=1)


class PipelineSpec(Written):
    """A graph of steps."""

    name: Name
    version: int = Field(default=1, ge=1, le=999_999_999)
    description: str = Field(default="", max_length=2_000)
    priority: Priority = Priority.STANDARD
    deadline: Annotated[Duration, Field(le=MAX_DEADLINE_MS)] = 60_000
    sensitivity: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")] = "internal"
    input: dict[str, Json] = Field(default_factory=lambda: {"type": "object"}, description="JSON Schema.")
    steps: tuple[StepSpec, ...] = Field(min_length=1, max_length=MAX_STEPS)
    output: Json = Field(description="Template of the response's output.")
    slo: SLO | None = None
