"""Hand-made histories: one request and its records, to be spoilt in one place."""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from loadtest.chaos.checker import Verdict, check
from loadtest.chaos.history import Act, Entry, Kind
from loadtest.chaos.seen import EventSeen, LetterSeen, Place, RequestSeen, ResponseSeen, Seen, UsageSeen
from loadtest.nemesis.fault import Evidence, Strike

T0 = 1_700_000_000_000
"""Log time of the first request."""
DEADLINE_MS = 20_000
DONE_MS = 300


def iso(at_ms: int) -> str:
    """As responses write it."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def place(topic: str, offset: int, at_ms: int, partition: int = 0) -> Place:
    """Where a record stands."""
    return Place(topic, partition, offset, at_ms)


@dataclass
class Story:
    """What happened. Starts empty; `ask` adds a whole request that went well."""

    entries: list[Entry] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    strikes: list[Strike] = field(default_factory=list)
    offset: int = 0

    def next(self, topic: str, at_ms: int) -> Place:
        """The next place of a topic."""
        self.offset += 1
        return place(topic, self.offset, at_ms)

    def invoke(self, request_id: str, nonce: str, at_ms: int = T0, act: Act = "invoke", kind: Kind = "ok") -> None:
        """A client sends a request and is told."""
        body = {
            "request_id": request_id, "pipeline": "chain", "input": {"nonce": nonce, "n": 3},
            "deadline_ms": DEADLINE_MS, "labels": {"nonce": nonce},
        }  # fmt: skip
        self.entries.append(Entry("invoke", act, 0, request_id, at_ms, body))
        where = self.next("inference-requests", at_ms)
        self.entries.append(Entry(kind, act, 0, request_id, at_ms + 2, where=where.where if kind == "ok" else None))
        if kind != "fail":
            self.seen.requests.append(RequestSeen(where, request_id, nonce))

    def start(self, request_id: str, run_id: str, at_ms: int = T0 + 5) -> None:
        """The run opens."""
        self.event("run-started", run_id, at_ms, request_id=request_id)

    def event(self, type_: str, run_id: str, at_ms: int, **fields: Any) -> None:
        """Any event."""
        self.seen.events.append(EventSeen(self.next("inference-events", at_ms), type_, run_id, **fields))

    def finish(self, request_id: str, run_id: str, nonce: str, at_ms: int = T0 + DONE_MS, **changes: Any) -> None:
        """The run ends, is answered, and billed."""
        self.event("run-finished", run_id, at_ms)
        self.respond(request_id, run_id, nonce, at_ms, **changes)
        bill = {"run_id": run_id, "cost_usd": 0.002, "by_step": {"one": {"attempts": 1}}}
        self.seen.usage.append(UsageSeen(self.next("inference-usage", at_ms), run_id, json.dumps(bill).encode()))

    def respond(self, request_id: str, run_id: str, nonce: str, at_ms: int, **changes: Any) -> None:
        """A response record."""
        fields = {
            "request_id": request_id, "run_id": run_id, "status": "succeeded", "output": {"nonce": nonce, "n": 8},
            "missing": [], "error": None, "labels": {"nonce": nonce}, "finished_at": iso(at_ms),
            "usage": {"cost_usd": 0.002, "by_step": {"one": {"attempts": 1}}},
        } | changes  # fmt: skip
        self.seen.responses.append(
            ResponseSeen(self.next("inference-responses", at_ms + 2), request_id, json.dumps(fields).encode())
        )

    def ask(self, number: int = 1, **changes: Any) -> "Story":
        """A request that goes well, but for the changes to its response."""
        request_id, run_id, nonce = names(number)
        self.invoke(request_id, nonce)
        self.start(request_id, run_id)
        self.complete(run_id, T0 + 50)
        self.finish(request_id, run_id, nonce, **changes)
        return self

    def complete(self, run_id: str, at_ms: int, service_ms: float = 20.0) -> None:
        """Its first step is done."""
        self.event("step-completed", run_id, at_ms, step="one", attempt=1, model_class="quick",
                   task_at_ms=at_ms - 30, service_ms=service_ms)  # fmt: skip

    def strike(self, kind: str, from_ms: int, to_ms: int, evidence: str = "seen") -> None:
        """A fault."""
        self.strikes.append(Strike(kind, "target", from_ms, to_ms, Evidence(evidence)))

    def letter(self, origin: str, key: str, reason: str) -> None:
        """A dead letter."""
        where = self.next(f"{origin.partition('/')[0]}-dlq", T0 + 100)
        self.seen.letters.append(LetterSeen(where, origin, reason, "why", key))

    def verdict(self) -> Verdict:
        """What the checker says."""
        return check(self.entries, self.seen, self.strikes)

    def anomalies(self) -> dict[str, list[str]]:
        """What it found, by class, without the classes in which there is nothing."""
        return {kind: [a.what for a in found] for kind, found in self.verdict().anomalies.items() if found}


def names(number: int) -> tuple[str, str, str]:
    """Request id, run id and nonce of a request."""
    return f"chaos-7-{number}", f"run-{number}", f"nonce-7-{number}-"


def later(record: ResponseSeen, by_ms: int) -> ResponseSeen:
    """The same record again, further on."""
    again = replace(record.place, offset=record.place.offset + 1_000, at_ms=record.place.at_ms + by_ms)
    return replace(record, place=again)
