"""Dead letters: the original record, unchanged, with headers that say why it is here."""

from schemas import headers
from schemas.errors import DeadLetterReason
from schemas.topics import DEAD_LETTER_SUFFIX
from services.chassis.kafka.types import Outgoing, Record

MAX_MESSAGE = 500

_STRIPPED = frozenset((headers.AUTHORIZATION,))
_OURS = frozenset(
    (
        headers.X_ERROR_CLASS,
        headers.X_ERROR_MESSAGE,
        headers.X_ORIGINAL_TOPIC,
        headers.X_ORIGINAL_PARTITION,
        headers.X_ORIGINAL_OFFSET,
        headers.X_FIRST_TIMESTAMP,
        headers.X_TASK_ID,
        headers.X_ATTEMPT,
    )
)


def dead_letter(
    record: Record, reason: DeadLetterReason, message: str, *, task_id: str | None = None, attempt: int | None = None
) -> Outgoing:
    """The record for `<topic>-dlq`: key, bytes and headers as they came, but for credentials."""
    why = {
        headers.X_ERROR_CLASS: reason.value,
        headers.X_ERROR_MESSAGE: _one_line(message),
        headers.X_ORIGINAL_TOPIC: record.topic,
        headers.X_ORIGINAL_PARTITION: str(record.partition),
        headers.X_ORIGINAL_OFFSET: str(record.offset),
        headers.X_FIRST_TIMESTAMP: str(record.timestamp),
        headers.X_TASK_ID: task_id,
        headers.X_ATTEMPT: None if attempt is None else str(attempt),
    }
    kept = tuple((name, value) for name, value in record.headers if name.lower() not in _STRIPPED | _OURS)
    added = tuple((name, text.encode()) for name, text in why.items() if text is not None)
    return Outgoing(record.topic + DEAD_LETTER_SUFFIX, record.value or b"", record.key, kept + added)


def _one_line(message: str) -> str:
    """Fit for a header and a terminal."""
    return "".join(char if char.isprintable() else " " for char in message)[:MAX_MESSAGE]
