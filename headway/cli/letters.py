"""Dead letters as operators handle them: which are meant, what a replay is, and which were replayed already."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from schemas import headers
from schemas.errors import DeadLetterReason
from schemas.events import RequestCoordinates
from schemas.requests import InferenceRequest
from schemas.topics import IDEMPOTENCY_WINDOW_MS, MAX_RECORD_BYTES, TASKS, Topic
from services.chassis.kafka.dead_letters import OriginalLostError, original
from services.chassis.kafka.records import fits
from services.chassis.kafka.types import Outgoing, Record
from services.orchestrator.domain.admission import RequestRecord, request_id_of

REPLAYED = b"letters-replayed"
"""The `message-type` of the note that a replay leaves in the dead-letter topic."""
EVENT = (
    "the log decides by order: an event appended again, later, could decide its run anew. The run ends by its"
    " deadline; send its request again"
)
STEP = "its step failed when the letter was written, and nobody waits for its result: send its request again"
NO_INGRESS = "no tenant has this ingress topic in the configuration in force"
_USELESS: Mapping[str, str] = {
    DeadLetterReason.IDEMPOTENCY_CONFLICT: (
        "another request has this id, and a request has one answer: send it again under a new request_id"
    ),
    DeadLetterReason.UNAUTHENTICATED: "its credentials were not kept: whoever sent it must send it again",
}


class NotReplayableError(Exception):
    """Replaying a letter would be unsafe or useless; the message says why."""


@dataclass(frozen=True, slots=True)
class Which:
    """The letters of one dead-letter topic that are meant. Times are when the letters were written."""

    reason: str | None = None
    partition: int | None = None
    """Of the original record."""
    since_ms: int | None = None
    until_ms: int | None = None
    request_id: str | None = None

    def __contains__(self, letter: Record) -> bool:
        partition = letter.header(headers.X_ORIGINAL_PARTITION)
        return (
            (self.reason is None or self.reason == reason_of(letter))
            and (self.partition is None or partition == str(self.partition))
            and (self.since_ms is None or letter.timestamp >= self.since_ms)
            and (self.until_ms is None or letter.timestamp < self.until_ms)
            and (self.request_id is None or self.request_id == _id_of(letter))
        )


def reason_of(letter: Record) -> str:
    """Why it is dead, in one word."""
    return letter.header(headers.X_ERROR_CLASS) or "unknown"


def replay_of(letter: Record, topics: Mapping[str, Topic], now_ms: int) -> Outgoing:
    """The record that asks again what a letter asked, under the same identity. Raises NotReplayableError.

    `topics` are those of the configuration in force, by name, with the partitions they have.
    """
    try:
        record = original(letter)
    except OriginalLostError as error:
        raise NotReplayableError(str(error)) from None
    _require_request(record.topic, topics)
    _require_use(letter, now_ms)
    at = f"{letter.topic}/{letter.partition}/{letter.offset}".encode()
    kept = tuple((name, value) for name, value in record.headers if name != headers.X_REPLAYED_FROM)
    known = replace(record, headers=(*kept, *_identity(record), (headers.X_REPLAYED_FROM, at)))
    partition = record.partition if record.partition < (topics[record.topic].partitions or 0) else None
    outgoing = Outgoing(known.topic, known.value, known.key, known.headers, partition)
    if not fits(outgoing):
        raise NotReplayableError(f"it is larger than the {MAX_RECORD_BYTES} bytes that {record.topic} takes")
    return outgoing


def _require_request(topic: str, topics: Mapping[str, Topic]) -> None:
    contract = topics.get(topic)
    if contract is not None and contract.message == InferenceRequest.__name__:
        return
    if contract is not None and contract.keyed_by_run:
        raise NotReplayableError(STEP if contract.message == "StepReady" else EVENT)
    raise NotReplayableError(STEP if topic.startswith(TASKS) else NO_INGRESS)


def _require_use(letter: Record, now_ms: int) -> None:
    reason = reason_of(letter)
    if reason in _USELESS:
        raise NotReplayableError(_USELESS[reason])
    until = letter.timestamp + IDEMPOTENCY_WINDOW_MS
    if reason == DeadLetterReason.POISON and now_ms < until:
        raise NotReplayableError(
            f"it was answered as failed, and its id is remembered until {clock(until)}: the replay would be passed"
            " over as a repeat. Replay it then, or send it again under a new request_id"
        )


def _identity(record: Record) -> tuple[tuple[str, bytes], ...]:
    """The header that carries the id on, when it was made of where the record stood: the replay stands elsewhere."""
    elsewhere = replace(record, offset=record.offset + 1)
    found = _request_id(record)
    return () if found == _request_id(elsewhere) else ((headers.REQUEST_ID, found.encode()),)


def _request_id(record: Record) -> str:
    where = RequestCoordinates(
        topic=record.topic, partition=record.partition, offset=record.offset, log_time=record.timestamp
    )
    return request_id_of(RequestRecord(where, record.key, record.value, record.headers))


def _id_of(letter: Record) -> str | None:
    try:
        return _request_id(original(letter))
    except OriginalLostError:
        return None


# What was replayed ------------------------------------------------------------------------------


def note(topic: str, partition: int, offsets: Iterable[int]) -> Outgoing:
    """Says that these letters were replayed. It stands after them in their partition, and so is kept as long."""
    value = json.dumps(sorted(offsets)).encode()
    return Outgoing(topic, value, None, ((headers.MESSAGE_TYPE, REPLAYED),), partition)


def noted(record: Record) -> frozenset[int] | None:
    """The offsets that a note names; None for a letter, whatever its client's own headers say."""
    if record.header(headers.X_ERROR_CLASS) is not None or record.header(headers.MESSAGE_TYPE) != REPLAYED.decode():
        return None
    try:
        return frozenset(offset for offset in json.loads(record.value or b"[]") if isinstance(offset, int))
    except (ValueError, TypeError, RecursionError):
        return frozenset()


# What is typed ----------------------------------------------------------------------------------


def moment_ms(text: str, now_ms: int) -> int:
    """`30m` ago, or `2026-11-30T09:00:00+00:00`; without an offset it is UTC. Raises ValueError."""
    from schemas.durations import parse_duration_ms

    try:
        return now_ms - parse_duration_ms(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is neither a duration (30m: so long ago) nor an ISO 8601 time") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


def clock(milliseconds: int) -> str:
    """A time as people and scripts read it."""
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds")


def now_ms() -> int:
    """By this machine's clock."""
    return round(datetime.now(UTC).timestamp() * 1_000)


def tally(reasons: Iterable[str]) -> str:
    """`12 poison, 3 undecodable`."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(reasons).items()))
