"""Where poison goes: the original bytes, and headers that say why."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from schemas import headers
from schemas.errors import DeadLetterReason
from schemas.metrics import DEAD_LETTERS_TOTAL
from schemas.topics import DEAD_LETTER_SUFFIX
from services.chassis.kafka.records import max_record_bytes, record_bytes
from services.chassis.kafka.types import Outgoing, Record
from services.chassis.logging import canonical
from services.chassis.metrics import Metrics

MAX_MESSAGE = 500
MAX_DIGITS = 19
LENGTH_BYTES = 8
"""What a longer value adds to its own length prefix, at most."""

ADDED = frozenset({
    headers.X_ERROR_CLASS, headers.X_ERROR_MESSAGE, headers.X_ORIGINAL_TOPIC, headers.X_ORIGINAL_PARTITION,
    headers.X_ORIGINAL_OFFSET, headers.X_FIRST_TIMESTAMP, headers.X_TASK_ID, headers.X_ATTEMPT, headers.X_CUT_FROM,
})  # fmt: skip
"""Headers that a letter has and its record had not."""

Headers = tuple[tuple[str, bytes], ...]


class OriginalLostError(ValueError):
    """A letter does not hold its record whole; the message says what is missing."""


class DeadLetters:
    """Makes dead letters, counted and told."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counter = metrics.counter(DEAD_LETTERS_TOTAL)

    def expect(self, topics: Iterable[str], reasons: Iterable[DeadLetterReason]) -> None:
        """Their counts stand at 0 before the first: only then is the first an increase."""
        self._metrics.counter(DEAD_LETTERS_TOTAL, known=product(topics, reasons))

    def letter(self, record: Record, why: DeadLetterReason, message: str) -> Outgoing:
        """The record for the dead-letter topic."""
        self._counter.labels(record.topic, why).inc()
        canonical("dead_lettered", topic=record.topic, partition=record.partition, offset=record.offset, why=message)
        return dead_letter(record, why, message)


def dead_letter(
    record: Record, reason: DeadLetterReason, message: str, *, task_id: str | None = None, attempt: int | None = None
) -> Outgoing:
    """The record for its topic's dead-letter topic: key, value and headers as they came, but for credentials.

    A record so large that it fits no dead letter (it came compressed) is cut, and says so in `x-cut-from`.
    """
    why = tuple(_explain(record, reason, message, task_id, attempt))
    replaced = {headers.AUTHORIZATION, headers.X_CUT_FROM, *(name for name, _ in why)}
    kept = tuple((name, value) for name, value in record.headers if name.lower() not in replaced)
    letter = Outgoing(record.topic + DEAD_LETTER_SUFFIX, record.value, record.key, kept + why)
    return letter if record_bytes(letter) <= max_record_bytes(letter.topic) else _cut(letter, why)


def original(letter: Record) -> Record:
    """The record a letter was made of, but for its credentials. Raises OriginalLostError."""
    if (size := letter.header(headers.X_CUT_FROM)) is not None:
        raise OriginalLostError(f"the letter was cut: the original had {size[:MAX_DIGITS]} bytes")
    if letter.value is None and (why := letter.header(headers.X_UNREADABLE)) is not None:
        raise OriginalLostError(f"the original could not be read from the log: {why[:MAX_MESSAGE]}")
    names = (headers.X_ORIGINAL_PARTITION, headers.X_ORIGINAL_OFFSET, headers.X_FIRST_TIMESTAMP)
    partition, offset, timestamp = (_number(letter, name) for name in names)
    topic = letter.topic.removesuffix(DEAD_LETTER_SUFFIX)
    if letter.header(headers.X_ORIGINAL_TOPIC) != topic:
        raise OriginalLostError(f"header {headers.X_ORIGINAL_TOPIC!r} does not name {topic}")
    kept = tuple((name, value) for name, value in letter.headers if name.lower() not in ADDED)
    return Record(topic, partition, offset, timestamp, letter.key, letter.value, kept)


def _number(letter: Record, name: str) -> int:
    text = letter.header(name) or ""
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise OriginalLostError(f"header {name!r} is no number")
    return int(text)


def _explain(
    record: Record, reason: DeadLetterReason, message: str, task_id: str | None, attempt: int | None
) -> Iterator[tuple[str, bytes]]:
    yield headers.X_ERROR_CLASS, reason.value.encode()
    yield headers.X_ERROR_MESSAGE, _one_line(message).encode()
    yield headers.X_ORIGINAL_TOPIC, record.topic.encode()
    yield headers.X_ORIGINAL_PARTITION, b"%d" % record.partition
    yield headers.X_ORIGINAL_OFFSET, b"%d" % record.offset
    yield headers.X_FIRST_TIMESTAMP, b"%d" % record.timestamp
    if task_id is not None:
        yield headers.X_TASK_ID, task_id.encode(errors="replace")
    if attempt is not None:
        yield headers.X_ATTEMPT, b"%d" % attempt


def _one_line(message: str) -> str:
    """No control characters, line ends of any kind or lone surrogates: it is shown in terminals."""
    printable = "".join(character if character.isprintable() else " " for character in message)
    return " ".join(printable.split())[:MAX_MESSAGE]


def _cut(letter: Outgoing, why: Headers) -> Outgoing:
    """Drops the end of the value; where that is not enough the original headers, too, and then the key."""
    value = letter.value or b""
    cut = (headers.X_CUT_FROM, b"%d" % len(value))
    for key, kept in ((letter.key, letter.headers), (letter.key, why), (None, why)):
        bare = replace(letter, value=b"", key=key, headers=(*kept, cut))
        room = max_record_bytes(letter.topic) - record_bytes(bare) - LENGTH_BYTES
        if room >= 0:
            return replace(bare, value=value[:room])
    raise AssertionError("a reason alone always fits")
