"""The judge: goes over history and log and reports every anomaly by its class. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pydantic_core import from_json

from loadtest.chaos.case import RUBBISH, Case
from loadtest.chaos.history import Entry
from loadtest.chaos.marks import marks
from loadtest.chaos.outcomes import misfit
from loadtest.chaos.seen import EventSeen, Seen, as_object
from loadtest.nemesis.fault import Strike
from schemas.errors import DeadLetterReason

GRACE_MS = 15_000
"""From a deadline to the outcome, by the promise."""
STOP_WITHIN_MS = 1_000
"""From the end of a run to the last start of an engine, by the promise."""
CRASHES = ("kill-aggregator", "freeze-aggregator", "skew-aggregator", "storm-aggregator",
           "kill-broker", "stop-broker", "freeze-broker")  # fmt: skip
"""After these, what was published but not committed is published again."""
CRASH_AFTERMATH_MS = 20_000
"""A session, a rebalance, and the way to the end of the log."""
STORE_FAULTS = ("kill-valkey", "freeze-valkey", "flush-valkey")
STORE_AFTERMATH_MS = 3_000
"""Clients rest a second, and subscribe again."""
BLURRED = ("freeze-worker", "kill-broker", "stop-broker", "freeze-broker")
"""While these last, an event's stamp says nothing about when its engine began."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not be."""

    kind: str
    what: str
    """The request, run, record or fault."""
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run amounts to."""

    accepted: int
    answered: int
    duplicates: int
    """Identical copies of responses, beyond the first."""
    anomalies: Mapping[str, Sequence[Anomaly]]
    """By class, every class listed."""
    faults: Mapping[str, int]

    @property
    def clean(self) -> bool:
        """Nothing at all."""
        return not any(self.anomalies.values())


def check(entries: Sequence[Entry], seen: Seen, strikes: Sequence[Strike]) -> Verdict:
    """The verdict over one run."""
    case = Case(entries, seen, strikes)
    found: dict[str, list[Anomaly]] = {kind: [] for kind in CLASSES}
    for kind, look in CLASSES.items():
        found[kind].extend(Anomaly(kind, what, why) for what, why in look(case))
    return Verdict(
        accepted=len(case.accepted),
        answered=sum(request_id in case.responses for request_id in case.accepted),
        duplicates=sum(len(records) - len({r.value for r in records}) for records in case.responses.values()),
        anomalies=found,
        faults=_count(strikes),
    )


Found = Iterator[tuple[str, str]]


def _lost(case: Case) -> Found:
    for request_id in sorted(case.accepted - set(case.responses)):
        yield request_id, "was accepted, and has no response"


def _conflicting(case: Case) -> Found:
    for request_id, records in case.responses.items():
        if len({record.value for record in records}) > 1:
            yield request_id, f"responses that differ: {', '.join(record.place.where for record in records)}"


def _unexplained_duplicates(case: Case) -> Found:
    for request_id, records in case.responses.items():
        for before, after in pairwise(records):
            if not case.struck(CRASHES, before.place.at_ms, after.place.at_ms, CRASH_AFTERMATH_MS):
                yield request_id, f"{after.place.where} repeats {before.place.where}, and nothing crashed"


def _phantom(case: Case) -> Found:
    for request_id, records in case.responses.items():
        if request_id not in case.asked and not request_id.startswith(RUBBISH):
            yield request_id, f"{records[0].place.where} answers what nobody asked"


def _misfit(kind: str) -> Callable[[Case], Found]:
    def look(case: Case) -> Found:
        for request_id, response in case.first_response.items():
            request = case.asked.get(request_id)
            wrong = misfit(case, request, response) if request is not None else None
            if wrong is not None and wrong.kind == kind:
                yield request_id, f"{response.place.where}: {wrong.why}"

    return look


def _late(case: Case) -> Found:
    for request_id, response in case.first_response.items():
        request = case.asked.get(request_id)
        if request is None or request.accepted_at_ms is None:
            continue
        at = response.place.at_ms
        due = request.deadline_at_ms + GRACE_MS + case.without_broker_ms(request.accepted_at_ms, at)
        if at > due:
            yield request_id, f"{response.place.where} came {at - due} ms too late"


def _stuck(case: Case) -> Found:
    for run_id, event in case.opened.items():
        if run_id not in case.finished:
            yield run_id, f"opened at {event.place.where} by request {event.request_id}, and never finished"


def _published_after_cancel(case: Case) -> Found:
    for run_id, cancel in case.cancels.items():
        opened, request_id = case.opened.get(run_id), case.request_of.get(run_id, "")
        response = case.first_response.get(request_id)
        if opened is None or opened.type != "run-started" or response is None or response.status == "cancelled":
            continue
        if cancel.place.at_ms < response.decided_at_ms:
            yield request_id, f"{response.status}, though cancelled at {cancel.place.where}"


def _started_after_end(case: Case) -> Found:
    for event in case.seen.events:
        end = case.finished.get(event.run_id)
        if end is None or event.task_at_ms is None or not event.service_ms:
            continue
        began_at = event.place.at_ms - event.service_ms
        if event.queue_ms is not None:  # which is better: an event may be appended long after its engine has ended
            began_at = event.task_at_ms + event.queue_ms
        if began_at > end.place.at_ms + STOP_WITHIN_MS and not _excused(case, end, event):
            late = began_at - end.place.at_ms
            yield event.run_id, f"{event.step}#{event.attempt} began {late:.0f} ms after {end.place.where}"


def _excused(case: Case, end: EventSeen, event: EventSeen) -> bool:
    """Redis was away, so nobody could be told; or the stamp is not to be trusted."""
    from_ms, to_ms = end.place.at_ms, event.place.at_ms
    return case.struck(STORE_FAULTS, from_ms, to_ms, STORE_AFTERMATH_MS) or case.struck(BLURRED, from_ms, to_ms)


def _usage_mismatches(case: Case) -> Found:
    bills: dict[str, set[bytes]] = {}
    for record in case.seen.usage:
        bills.setdefault(record.run_id, set()).add(record.value)
    attempts = _attempts(case)
    for request_id, response in case.first_response.items():
        run_id = str(response.fields.get("run_id"))
        found = bills.get(run_id, set())
        if len(found) != 1:
            yield request_id, f"run {run_id} has {len(found)} different bills"
            continue
        bill = as_object(from_json(next(iter(found))))
        if wrong := _wrong_bill(bill, as_object(response.fields.get("usage")), attempts.get(run_id, {})):
            yield request_id, f"run {run_id}: {wrong}"


def _wrong_bill(
    bill: Mapping[str, object], told: Mapping[str, object], attempts: Mapping[str, set[int]]
) -> str | None:
    by_step = as_object(bill.get("by_step"))
    if bill.get("cost_usd") != told.get("cost_usd") or set(by_step) != set(as_object(told.get("by_step"))):
        return "the bill and the response differ"
    for step, cost in by_step.items():
        if cost.get("attempts", 0) > len(attempts.get(step, ())):
            return f"{step} is charged for more attempts than there were"
    return None


def _attempts(case: Case) -> dict[str, dict[str, set[int]]]:
    """Attempts that ran somewhere, by run and step."""
    found: dict[str, dict[str, set[int]]] = {}
    for event in case.seen.events:
        if event.step is not None and event.model_class is not None:
            found.setdefault(event.run_id, {}).setdefault(event.step, set()).add(event.attempt)
    return found


def _unlettered(case: Case) -> Found:
    lettered = {letter.origin for letter in case.seen.letters}
    for entry in case.entries:
        if entry.act == "contradict" and entry.kind == "ok" and entry.where not in lettered:
            yield entry.request_id, f"{entry.where} contradicts it, and is in no dead-letter topic"


def _wrongly_lettered(case: Case) -> Found:
    contradicted = {entry.request_id for entry in case.entries if entry.act == "contradict"}
    for letter in case.seen.letters:
        conflict = letter.reason == DeadLetterReason.IDEMPOTENCY_CONFLICT and letter.key in contradicted
        if not conflict and not letter.key.startswith(RUBBISH):
            yield letter.origin, f"{letter.place.where}: {letter.reason}: {letter.message}"


def _faults_without_evidence(case: Case) -> Found:
    shown = marks(case)
    for strike in case.strikes:
        if not strike.evidence.seen and shown.isdisjoint(strike.evidence.expected):
            yield strike.kind, f"nothing shows that it bit {strike.target}"


def _count(strikes: Sequence[Strike]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for strike in strikes:
        counts[strike.kind] = counts.get(strike.kind, 0) + 1
    return dict(sorted(counts.items()))


CLASSES: Mapping[str, Callable[[Case], Found]] = {
    "lost": _lost,
    "conflicting": _conflicting,
    "unexplained_duplicates": _unexplained_duplicates,
    "phantom": _phantom,
    "wrong_joins": _misfit("wrong_joins"),
    "torn_joins": _misfit("torn_joins"),
    "wrong_outcomes": _misfit("wrong_outcomes"),
    "late": _late,
    "stuck": _stuck,
    "published_after_cancel": _published_after_cancel,
    "started_after_end": _started_after_end,
    "usage_mismatches": _usage_mismatches,
    "unlettered": _unlettered,
    "wrongly_lettered": _wrongly_lettered,
    "faults_without_evidence": _faults_without_evidence,
}
