"""Messages as records: JSON values, and the headers that every message of a run carries."""

from collections.abc import Mapping
from functools import cache

from schemas import headers
from schemas.base import SCHEMA_VERSION, Message, RunMessage
from schemas.events import RunFinished
from schemas.responses import InferenceResponse
from services.chassis.kafka.types import Outgoing

_WHOLE = (RunFinished, InferenceResponse)
_SCHEMA_VERSION = (headers.SCHEMA_VERSION, str(SCHEMA_VERSION).encode())


def encode(message: Message) -> bytes:
    """The value of a record. Absent fields are left out, but for what a client reads; nulls inside outputs stay."""
    return message.__pydantic_serializer__.to_json(message, exclude_none=type(message) not in _WHOLE)


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
    run_id = message.run_id.encode()
    found = {
        headers.RUN_ID: run_id,
        headers.TENANT: message.tenant.encode(),
        headers.MESSAGE_TYPE: message_type(message).encode(),
    }
    for name, text in (more or {}).items():
        found[name] = text.encode()
    if message.traceparent is not None:
        found[headers.TRACEPARENT] = message.traceparent.encode()
    return Outgoing(
        topic, value or encode(message), key.encode() if key else run_id, (_SCHEMA_VERSION, *found.items()), partition
    )


def message_type(message: Message) -> str:
    """The `type` of an event or status; the class name of what has none."""
    return _type_of(type(message))


@cache
def _type_of(kind: type[Message]) -> str:
    """Asking a message for a field that it has not takes as long as all its headers."""
    field = kind.model_fields.get("type")
    return str(field.default) if field else kind.__name__
