"""History and log side by side, indexed by what the checker asks for."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Protocol, TypeVar

from pydantic_core import from_json

from loadtest.chaos.history import Entry
from loadtest.chaos.seen import EventSeen, Place, RequestSeen, ResponseSeen, Seen, as_object
from loadtest.nemesis.fault import Strike
from schemas.base import Json

RUBBISH = "rubbish-"
"""Keys and ids of what the nemesis writes itself begin with it."""
BROKER_FAULTS = frozenset({"kill-broker", "stop-broker", "freeze-broker"})


@dataclass(frozen=True, slots=True)
class Response:
    """A response, read."""

    place: Place
    fields: Mapping[str, Json]

    @property
    def status(self) -> str:
        return str(self.fields.get("status"))

    @property
    def code(self) -> str | None:
        """Of its error."""
        code: str | None = as_object(self.fields.get("error")).get("code")
        return code

    @property
    def decided_at_ms(self) -> int:
        """Log time of the record that decided."""
        return round(datetime.fromisoformat(str(self.fields["finished_at"])).timestamp() * 1_000)


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked, and when the broker first took it."""

    request_id: str
    body: Mapping[str, Json]
    accepted_at_ms: int | None
    """None: nothing of it is in the log."""

    @property
    def nonce(self) -> str:
        return str(self.body["input"]["nonce"])

    @property
    def pipeline(self) -> str:
        return str(self.body["pipeline"])

    @property
    def deadline_at_ms(self) -> int:
        """Of an accepted request."""
        assert self.accepted_at_ms is not None
        return self.accepted_at_ms + int(self.body["deadline_ms"])


class Case:
    """Pure: made of values, and never changed."""

    def __init__(self, entries: Sequence[Entry], seen: Seen, strikes: Sequence[Strike]) -> None:
        self.entries = entries
        self.seen = seen
        self.strikes = strikes

    @cached_property
    def asked(self) -> dict[str, Request]:
        """Every request of the clients, by its id: as it was first invoked."""
        found: dict[str, Request] = {}
        for entry in self.entries:
            if entry.kind == "invoke" and entry.act == "invoke" and entry.body is not None:
                accepted_at = min((r.place.at_ms for r in self.requests.get(entry.request_id, ())), default=None)
                found[entry.request_id] = Request(entry.request_id, entry.body, accepted_at)
        return found

    @cached_property
    def accepted(self) -> set[str]:
        """Requests that were acknowledged, or stand in the log though their client was not told."""
        told = {entry.request_id for entry in self.entries if entry.kind == "ok" and entry.act in _REQUESTS}
        return told | {request_id for request_id in self.requests if request_id in self.asked}

    @cached_property
    def requests(self) -> dict[str, list[RequestSeen]]:
        """Records of the ingress topic by key."""
        return _by(self.seen.requests, lambda request: request.request_id)

    @cached_property
    def responses(self) -> dict[str, list[ResponseSeen]]:
        """Records of the response topic by key, in the order in which the broker took them."""
        return _by(self.seen.responses, lambda response: response.request_id)

    @cached_property
    def first_response(self) -> dict[str, Response]:
        """What each request was answered first."""
        return {
            request_id: Response(records[0].place, as_object(from_json(records[0].value)))
            for request_id, records in self.responses.items()
        }

    @cached_property
    def request_of(self) -> dict[str, str]:
        """Request id by run id, as the events that opened the runs say."""
        return {event.run_id: event.request_id for event in self.seen.events if event.request_id is not None}

    @cached_property
    def opened(self) -> dict[str, EventSeen]:
        """The first event that opened each run."""
        return _first(event for event in self.seen.events if event.type in ("run-started", "run-rejected"))

    @cached_property
    def finished(self) -> dict[str, EventSeen]:
        """The first `run-finished` of each run."""
        return _first(event for event in self.seen.events if event.type == "run-finished")

    @cached_property
    def cancels(self) -> dict[str, EventSeen]:
        """The first cancel of each run."""
        return _first(event for event in self.seen.events if event.type == "run-cancelled")

    def struck(self, kinds: Iterable[str], from_ms: int, to_ms: int, aftermath_ms: int = 0) -> bool:
        """Whether a fault of one of these kinds was felt within that time."""
        wanted = frozenset(kinds)
        return any(s.kind in wanted and s.overlaps(from_ms, to_ms, aftermath_ms) for s in self.strikes)

    def without_broker_ms(self, from_ms: int, to_ms: int) -> int:
        """How long of that time there was no broker: overlapping faults count once."""
        windows = sorted(
            (max(from_ms, s.began_ms), min(to_ms, s.ended_ms)) for s in self.strikes if s.kind in BROKER_FAULTS
        )
        total, reached = 0, from_ms
        for begin, end in windows:
            total += max(0, end - max(begin, reached))
            reached = max(reached, end)
        return total


_REQUESTS = ("invoke", "repeat")


class _Placed(Protocol):
    @property
    def place(self) -> Place: ...


R = TypeVar("R", bound=_Placed)


def _by(records: Sequence[R], key: Callable[[R], str]) -> dict[str, list[R]]:
    """Grouped, the earliest first."""
    found: defaultdict[str, list[R]] = defaultdict(list)
    for record in sorted(
        records, key=lambda record: (record.place.at_ms, record.place.partition, record.place.offset)
    ):
        found[key(record)].append(record)
    return dict(found)


def _first(events: Iterable[EventSeen]) -> dict[str, EventSeen]:
    """By run id: all events of a run stand in one partition, so their order is the log's."""
    found: dict[str, EventSeen] = {}
    for event in events:
        known = found.setdefault(event.run_id, event)
        if event.place.offset < known.place.offset:
            found[event.run_id] = event
    return found
