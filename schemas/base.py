"""What all contracts share: the frozen base, the envelope of a run's messages, and a few named types."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

SCHEMA_VERSION = 1

LogTime = Annotated[int, Field(ge=0, description="Milliseconds since the epoch, stamped by the broker.")]
Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False, description="A duration in milliseconds.")]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
"""A step id: usable as ``steps.<id>`` in an expression."""
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$")]
"""A name that becomes part of a topic: kebab-case, at most 48 characters."""
SafeText = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""An id or a session from a client: one line, no control characters."""

Json = Any
"""A JSON value. Decoded once at the edge; inside the plane it is not validated again."""


class Priority(StrEnum):
    """The lane a request travels in; the order is the rank."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


LANE_WEIGHTS: Mapping[Priority, int] = {Priority.INTERACTIVE: 12, Priority.STANDARD: 4, Priority.BATCH: 1}
"""How lanes that all have work share a worker's slots. The lowest keeps 1/17 of a saturated one: 5.9 %."""


def reserved_slots(total: int) -> int:
    """A quarter of a worker's slots is for the interactive lane only."""
    return total // 4


class RunStatus(StrEnum):
    """The terminal outcomes of a run."""

    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    BLOCKED = "blocked"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class StepStatus(StrEnum):
    """Where a step stands; all but the first two are terminal."""

    PENDING = "pending"
    READY = "ready"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


class Contract(BaseModel):
    """A frozen value; unknown fields are ignored, so that an older reader survives a newer writer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Message(Contract):
    """The value of a Kafka record."""

    schema_version: Literal[1] = Field(default=1, description="Version of this message's schema.")


class RunMessage(Message):
    """A message that belongs to one run: what its headers mirror."""

    run_id: str = Field(description="uuid5(tenant, request id): names the run in every topic.")
    tenant: str = Field(description="Who pays; never taken from a request's body.")
    traceparent: str | None = Field(default=None, description="W3C trace context of the request.")


class BlobRef(Contract):
    """A claim check: a value too large for a record, stored by its content."""

    sha256: str = Field(description="Digest of the stored bytes: the blob's name.")
    size_bytes: int = Field(ge=0, description="Size of the stored JSON in bytes.")


class Output(Contract):
    """A step's output: inline, or a reference to the blob store. Exactly one is meant."""

    value: Json = Field(default=None, description="The output itself, when it is small.")
    ref: BlobRef | None = Field(default=None, description="Where the output is, when it is not.")
