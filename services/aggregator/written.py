"""The outcomes that this process wrote, until the log gives them back."""

from typing import NamedTuple

from schemas.events import RunFinished
from services.chassis.kafka.types import Outgoing, Record

MAX_OUTCOMES = 1_024
MAX_BYTES = 16 * 1024
"""Larger ones are read again: what is kept here stays within 16 MiB, and a few times that as objects."""
_RESPONSE = b',"response":'
_USAGE = b',"usage":{"schema_version":'


class _Outcome(NamedTuple):
    value: bytes
    finished: RunFinished


class Written:
    """A `run-finished` mostly comes back to who wrote it: what its bytes say is known, and need not be parsed."""

    def __init__(self) -> None:
        self._outcomes: dict[bytes | None, _Outcome] = {}

    def keep(self, record: Outgoing, finished: RunFinished) -> None:
        """It was written as this record; the oldest is forgotten when there are many."""
        if record.value is not None and len(record.value) <= MAX_BYTES:
            self._outcomes[record.key] = _Outcome(record.value, finished)
            if len(self._outcomes) > MAX_OUTCOMES:
                del self._outcomes[next(iter(self._outcomes))]

    def find(self, record: Record) -> RunFinished | None:
        """What the record holds, if it is one of these to the last byte."""
        outcome = self._outcomes.get(record.key)
        return outcome.finished if outcome is not None and outcome.value == record.value else None

    def take_response(self, record: Record) -> bytes | None:
        """Its response, as the record has it, if it is one of these: it is not kept any longer."""
        outcome = self._outcomes.pop(record.key, None)
        return response_in(outcome.value) if outcome is not None and outcome.value == record.value else None

    def clear(self) -> None:
        """The log has another owner."""
        self._outcomes.clear()


def response_in(value: bytes) -> bytes:
    """The bytes of the response in a `run-finished` that this version wrote.

    Only texts come before it, in which a quote is escaped, and after it only the bill, which alone has a schema.
    """
    start = value.index(_RESPONSE) + len(_RESPONSE)
    return value[start : value.rindex(_USAGE)]
