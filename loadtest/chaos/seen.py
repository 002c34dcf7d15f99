"""What the topics held when all was over: of each record as much as the checker looks at."""

from dataclasses import dataclass, field

from schemas.base import Json


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands, and when the broker took it (ms since the epoch)."""

    topic: str
    partition: int
    offset: int
    at_ms: int

    @property
    def where(self) -> str:
        """`topic/partition/offset`."""
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """A record of the ingress topic, by its key."""

    place: Place
    request_id: str
    nonce: str | None = None
    """Of its input; None for what is no request of a client."""


@dataclass(frozen=True, slots=True)
class ResponseSeen:
    """A record of the response topic."""

    place: Place
    request_id: str
    """Its key."""
    value: bytes


@dataclass(frozen=True, slots=True)
class UsageSeen:
    """A record of the usage topic."""

    place: Place
    run_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class EventSeen:
    """An event that is one: rubbish is passed over."""

    place: Place
    type: str
    run_id: str
    request_id: str | None = None
    """Of an event that opens a run."""
    step: str | None = None
    attempt: int = 0
    fallback: int = 0
    model_class: str | None = None
    task_at_ms: int | None = None
    queue_ms: float | None = None
    service_ms: float = 0.0
    by_claim_check: bool = False
    """Its output is too large for a record."""
    code: str | None = None
    """Of a failed step's error."""


@dataclass(frozen=True, slots=True)
class LetterSeen:
    """A dead letter."""

    place: Place
    origin: str
    """`topic/partition/offset` of the record it was."""
    reason: str
    message: str
    key: str
    value_bytes: int = 0


@dataclass(slots=True)
class Seen:
    """All of it, each list in log order within a partition."""

    requests: list[RequestSeen] = field(default_factory=list)
    events: list[EventSeen] = field(default_factory=list)
    responses: list[ResponseSeen] = field(default_factory=list)
    usage: list[UsageSeen] = field(default_factory=list)
    letters: list[LetterSeen] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    """`topic/partition/offset` of what a service's log says it passed over."""


def as_object(value: Json) -> dict[str, Json]:
    """A JSON object, or an empty one."""
    return value if isinstance(value, dict) else {}
