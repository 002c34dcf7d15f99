"""Evidence that faults leave in the log, as texts that a strike can name in advance."""

from collections.abc import Iterator

from loadtest.chaos.case import Case
from loadtest.chaos.weather import Mood
from schemas.errors import DeadLetterReason, ErrorCode

SLOW_MS = 500.0
"""Only an engine that was told to be slow takes so long; the others' 99th percentile is half of it."""


def dead_letter(where: str) -> str:
    """The record at `topic/partition/offset` was dead-lettered."""
    return f"dead-letter {where}"


def passed_over(where: str) -> str:
    """A service says in its log that it does not know the record at `topic/partition/offset`."""
    return f"passed-over {where}"


def answered(request_id: str) -> str:
    """There is a response to this request."""
    return f"answered {request_id}"


def touched(mood: Mood, request_id: str) -> str:
    """The log shows that the mood was followed."""
    return f"{mood} {request_id}"


def marks(case: Case) -> set[str]:
    """All that the log shows."""
    return {
        *(dead_letter(letter.origin) for letter in case.seen.letters),
        *(passed_over(where) for where in case.seen.passed_over),
        *(answered(response.request_id) for response in case.seen.responses),
        *_of_requests(case),
        *_of_attempts(case),
        *_of_outcomes(case),
    }


def _of_requests(case: Case) -> Iterator[str]:
    for request_id, records in case.requests.items():
        if len(records) > 1:
            yield touched(Mood.REPEATED, request_id)
    for letter in case.seen.letters:
        if letter.reason == DeadLetterReason.IDEMPOTENCY_CONFLICT:
            yield touched(Mood.CONFLICTING, letter.key)


def _of_attempts(case: Case) -> Iterator[str]:
    for event in case.seen.events:
        request_id = case.request_of.get(event.run_id)
        if request_id is None:
            continue
        if event.code == ErrorCode.ENGINE_UNAVAILABLE:
            yield touched(Mood.ENGINE_FAILING, request_id)
        if event.code == ErrorCode.DEADLINE_EXCEEDED or event.fallback:
            yield touched(Mood.ENGINE_HANGING, request_id)
        if event.service_ms >= SLOW_MS:
            yield touched(Mood.ENGINE_SLOW, request_id)
        if event.by_claim_check:
            yield touched(Mood.LARGE, request_id)


def _of_outcomes(case: Case) -> Iterator[str]:
    for request_id, response in case.first_response.items():
        if response.status == "cancelled":
            yield touched(Mood.CANCELLED_BEFORE, request_id)
            yield touched(Mood.CANCELLED_AFTER, request_id)
