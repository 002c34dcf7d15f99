"""Messages as records: JSON values, and the headers that every message of a run carries."""

from collections.abc import Mapping

from schemas import headers
from schemas.base import SCHEMA_VERSION, Message, RunMessage
from schemas.events import RunFinished
from schemas.responses import InferenceResponse
from services.chassis.kafka.types import Outgoing


def encode(message: Message) -> bytes:
    """The value of a record. Absent fields are left out, but for what a client reads; nulls inside outputs stay."""
    whole = isinstance(message, RunFinished | InferenceResponse)
    return message.__pydantic_serializer__.to_json(message, exclude_none=not whole)


def run_record(
    topic: str,
    message: RunMessage,
    *,
    key: str | None = None,
    partition: int | None = None,
    value: bytes | None = None,
    more: Mapping[str, str] | None = None,
) -> Outgoing:
    """A message of a run as a record: keyed by the run id and holding the message, unless told otherwise."""
    found = {
        headers.SCHEMA_VERSION: str(SCHEMA_VERSION),
        headers.RUN_ID: message.run_id,
        headers.TENANT: message.tenant,
        headers.MESSAGE_TYPE: message_type(message),
        **(more or {}),
    }
    if message.traceparent is not None:
        found[headers.TRACEPARENT] = message.traceparent
    encoded = tuple((name, text.encode()) for name, text in found.items())
    return Outgoing(topic, value or encode(message), (key or message.run_id).encode(), encoded, partition)


def message_type(message: Message) -> str:
    """The `type` of an event or status; the class name of what has none."""
    return str(getattr(message, "type", type(message).__name__))
