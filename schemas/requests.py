"""What a client publishes to the ingress topic."""

from typing import Annotated

from pydantic import Field, StringConstraints

from schemas.base import Json, Message, Priority, SafeText

MAX_DEADLINE_MS = 3_600_000
"""The longest deadline a request may ask for; retention of every topic derives from it."""

PipelineReference = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?(@[1-9][0-9]{0,8})?$")
]
Label = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]


class InferenceRequest(Message):
    """One question to a pipeline; only ``pipeline`` and ``input`` are needed."""

    request_id: SafeText | None = Field(
        default=None,
        description="Else header x-request-id, else the record's key, else derived from its coordinates.",
    )
    pipeline: PipelineReference = Field(description="`name`, or `name@version`.")
    input: dict[str, Json] = Field(description="Checked against the pipeline's JSON Schema.")
    priority: Priority | None = Field(default=None, description="Default: the pipeline's.")
    deadline_ms: int | None = Field(
        default=None,
        gt=0,
        le=MAX_DEADLINE_MS,
        description="From the record's timestamp. Default: the pipeline's.",
    )
    session: SafeText | None = Field(default=None, description="Groups requests that share a prefix.")
    labels: dict[SafeText, Label] = Field(default_factory=dict, max_length=32, description="Echoed in the response.")
