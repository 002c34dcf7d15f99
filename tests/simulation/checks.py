"""What must hold whatever befell the plane. Each check yields what is wrong, by class."""

from collections.abc import Callable, Iterator, Sequence
from math import isclose
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from schemas.base import RunStatus, StepStatus
from schemas.events import RunFinished, RunStarted, StepCompleted
from schemas.responses import InferenceResponse
from schemas.topics import AGGREGATOR_GROUP, EVENTS, FLEET, IDEMPOTENCY_WINDOW_MS, RESPONSES
from services.aggregator.domain.decisions import Finish, Publish
from services.aggregator.domain.fold import LogRecord, fold
from services.aggregator.domain.outcomes import Mapped, finish
from services.aggregator.domain.state import Partition
from services.chassis.kafka.types import TopicPartition
from tests.simulation.clients import Asked
from tests.simulation.commits import committed_too_far
from tests.simulation.log import Log
from tests.simulation.pipelines import EMBEDS, OUTPUTS
from tests.simulation.reference import OUTPUT_FAILED, amounts_to
from tests.simulation.simulation import History
from tests.simulation.world import Assigned

LATE_MS = 15_000
"""What a run may take beyond its deadline, and beyond the last fault before its response."""


class Violation(NamedTuple):
    """Something promised did not hold."""

    kind: str
    what: str


def violations(history: History) -> list[Violation]:
    """All of them."""
    log = Log(history)
    return [Violation(check.__name__, what) for check in CHECKS for what in check(log)]


def trouble(log: Log) -> Iterator[str]:
    """No process ended by itself, no error went unseen, and time always passed."""
    yield from log.history.trouble


def lost(log: Log) -> Iterator[str]:
    """Every accepted request was answered."""
    for asked in log.history.asked:
        if asked.request_id not in log.responses:
            opening = log.opening(asked.run_id)
            yield f"{asked.request_id}: no response; {'never admitted' if opening is None else 'the run is stuck'}"


def conflicting(log: Log) -> Iterator[str]:
    """All copies of a response are the same bytes, headers included, and so are those of a bill."""
    for copies in (log.responses, log.bills):
        for key, records in copies.items():
            if len({(record.value, record.headers) for record in records}) > 1:
                yield f"{key}: {len(records)} copies of {records[0].topic} differ"


def late(log: Log) -> Iterator[str]:
    """Answered within 15 s after the deadline, not counting from before the last fault."""
    for asked in log.history.asked:
        opening = log.opening(asked.run_id)
        for response in log.responses.get(asked.request_id, ())[:1]:
            assert opening is not None
            due = opening.deadline_at if isinstance(opening, RunStarted) else opening.request.log_time
            disturbed = max((at for at in log.history.disturbances if at <= response.timestamp), default=0)
            if response.timestamp > max(due, disturbed) + LATE_MS:
                yield f"{asked.request_id}: answered {response.timestamp - due} ms after its deadline"


def unmarked(log: Log) -> Iterator[str]:
    """A response or a bill is published only when its `run-finished` stands in the log, and as that says."""
    for request_id, records in log.responses.items():
        run_id = from_json(records[0].value or b"{}")["run_id"]
        marker = log.finish(run_id)
        if marker is None or marker.stamp > records[0].timestamp:
            yield f"{request_id}: answered before the log said so"
        elif from_json(marker.record.value or b"{}")["response"] != from_json(records[0].value or b"{}"):
            yield f"{request_id}: the response is not the winning one"
    for run_id, records in log.bills.items():
        marker = log.finish(run_id)
        if marker is None or marker.stamp > records[0].timestamp:
            yield f"{run_id}: billed before the log said so"


def wrong_request(log: Log) -> Iterator[str]:
    """The first opening in the log decides which body is answered; another body under the id is a dead letter."""
    for asked in log.history.asked:
        opening = log.opening(asked.run_id)
        if opening is None:
            continue
        origin = TopicPartition(opening.request.topic, opening.request.partition), opening.request.offset
        body = _body_at(log, origin)
        if isinstance(opening, RunStarted) and log.value(opening.input) != body["input"]:
            yield f"{asked.request_id}: the run has another request's input"
        for coordinates, other in asked.accepted.items():
            if other != body and coordinates not in log.letter_at:
                yield f"{asked.request_id}: another body under its id, and no dead letter"


def _body_at(log: Log, origin: tuple[TopicPartition, int]) -> dict[str, Any]:
    tp, offset = origin
    records = [record for record in log.history.records[tp.topic] if (record.tp, record.offset) == (tp, offset)]
    body: dict[str, Any] = from_json(records[0].value or b"{}")
    return {name: value for name, value in body.items() if name != "request_id"}


def wrong_join(log: Log) -> Iterator[str]:
    """Outputs are those of the steps that won: the first one in the log of each, whole, and made from each other."""
    for asked, response in _answered(log):
        winners = _winners(log, response)
        for step, into in EMBEDS[response.pipeline].items():
            won = winners.get(step)
            if won and won.get("of") != (expected := _taken(into, winners)):
                yield f"{asked.request_id}: step {step} was made from {won.get('of')}, not from {expected}"
        if response.status in (RunStatus.SUCCEEDED, RunStatus.PARTIAL):
            number = asked.bodies[0]["input"]["n"]
            right = {"n": number, **{step: winners.get(step, {}) for step in OUTPUTS[response.pipeline]}}
            if response.output != right:
                yield f"{asked.request_id}: output {response.output}, not {right}"


def _answered(log: Log) -> Iterator[tuple[Asked, InferenceResponse]]:
    for asked in log.history.asked:
        for record in log.responses.get(asked.request_id, ())[:1]:
            response = InferenceResponse.model_validate_json(record.value or b"")
            if response.pipeline_version is not None:
                yield asked, response


def _winners(log: Log, response: InferenceResponse) -> dict[str, Any]:
    """The first output of each step that the response calls succeeded."""
    found: dict[str, Any] = {}
    for logged in log.by_run[response.run_id]:
        event = logged.event
        if isinstance(event, StepCompleted) and event.step not in found:
            report = response.steps.get(event.step)
            if report is not None and report.status is StepStatus.SUCCEEDED:
                found[event.step] = log.value(event.output)
    return found


def _taken(into: str | Sequence[str], winners: dict[str, Any]) -> Any:
    """What a step's input named: one step's output, or several."""
    return winners.get(into, {}) if isinstance(into, str) else [winners.get(step, {}) for step in into]


def foreign(log: Log) -> Iterator[str]:
    """Every answer of an engine was made for the run and the step whose event carries it."""
    for logged in log.events:
        if isinstance(logged.event, StepCompleted):
            output = log.value(logged.event.output)
            mark = output.get("by") if isinstance(output, dict) else None
            call = log.history.executions.get(mark or "")
            named = (logged.event.run_id, logged.event.step, logged.event.attempt)
            if call is not None and (call.run_id, call.step, call.attempt) != named:
                yield f"{named}: the output was made for {call.task_id}"


def wrong_charge(log: Log) -> Iterator[str]:
    """The bill holds each attempt that ran before the end, once."""
    for asked, response in _answered(log):
        opening, decided_at = log.opening(asked.run_id), _decided_at(log, asked)
        assert isinstance(opening, RunStarted)
        before = decided_at - 1 if decided_at >= opening.deadline_at else decided_at
        events = list(log.charged(asked.run_id, before))
        for step, cost in response.usage.by_step.items():
            ran = [event for event in events if event.step == step]
            if cost.attempts != len(ran) or not isclose(cost.cost_usd, sum(event.cost_usd for event in ran)):
                yield f"{asked.request_id}: step {step} is charged {cost.attempts} attempts, {len(ran)} ran"
        if unpaid := {event.step for event in events} - response.usage.by_step.keys():
            yield f"{asked.request_id}: steps {sorted(unpaid)} ran and are not charged"


def _decided_at(log: Log, asked: Asked) -> int:
    marker = log.finish(asked.run_id)
    assert marker is not None
    assert isinstance(marker.event, RunFinished)
    return marker.event.usage.finished_at


def not_as_rebuilt(log: Log) -> Iterator[str]:
    """Folding the log from its start gives the outcome that was published, and leaves nothing open."""
    for tp, events in log.by_partition.items():
        partition = Partition.empty(IDEMPOTENCY_WINDOW_MS)
        expected: dict[str, Any] = {}
        published: set[str] = set()
        for logged in events:
            partition, decisions = fold(partition, LogRecord(logged.stamp, logged.event))
            for decision in decisions:
                if isinstance(decision, Finish):
                    expected.setdefault(decision.run.run_id, decision.run)
                elif isinstance(decision, Publish):
                    published.add(decision.finished.run_id)
                    yield from _compare(log, expected.get(decision.finished.run_id), decision.finished)
        yield from (f"{tp}: {run_id} is open still" for run_id in partition.open)
        for run_id in {logged.event.run_id for logged in events} - published:
            if log.finish(run_id) is not None:
                yield f"{tp}: {run_id} has a run-finished that the fold does not take"


def _compare(log: Log, run: Any, finished: RunFinished) -> Iterator[str]:
    """The output mapping is the shell's: here what it gave is taken as given."""
    if run is None:
        yield f"{finished.run_id}: finished, and the fold has not decided it"
        return
    response = finished.response
    mapped = Mapped(response.output)
    if run.outcome.status in (RunStatus.SUCCEEDED, RunStatus.PARTIAL) and response.status is RunStatus.FAILED:
        mapped = Mapped(error=response.error)
    if (rebuilt := finish(run, mapped)) != finished:
        yield f"{finished.run_id}: {_difference(to_json(rebuilt).decode(), to_json(finished).decode())}"


def _difference(rebuilt: str, live: str) -> str:
    at = next((n for n, (one, other) in enumerate(zip(rebuilt, live, strict=False)) if one != other), 0)
    return f"rebuilt …{rebuilt[max(0, at - 60) : at + 60]}…, live …{live[max(0, at - 60) : at + 60]}…"


def wrong_outcome(log: Log) -> Iterator[str]:
    """Status, steps, attempts and the deciding moment are what a second reading of the log says."""
    for asked in log.history.asked:
        for record in log.responses.get(asked.request_id, ())[:1]:
            response = InferenceResponse.model_validate_json(record.value or b"")
            run = amounts_to(asked.run_id, [(each.stamp, each.event) for each in log.by_run[asked.run_id]])
            live = {name: (step.status.value, step.attempts, step.fallback) for name, step in response.steps.items()}
            read = {name: (step.status, step.attempts, step.link) for name, step in run.steps.items()}
            if live != read or response.missing != run.missing or _decided_at(log, asked) != run.decided_at:
                yield f"{asked.request_id}: {response.status}, {live}, read again {run.status}, {read}"
            elif response.status.value != run.status and not _lost_its_output(response, run.status):
                yield f"{asked.request_id}: {response.status}, read again {run.status}"


def _lost_its_output(response: InferenceResponse, status: str | None) -> bool:
    return status in ("succeeded", "partial") and response.error is not None and response.error.code in OUTPUT_FAILED


def acted_on_the_past(log: Log) -> Iterator[str]:
    """No owner ticks a run that the log had finished when it took over, nor answers what was answered by then."""
    offsets = {
        run_id: (logged.record.tp, logged.record.offset)
        for run_id in log.by_run
        if (logged := log.finish(run_id)) is not None
    }
    owned = _Ownership(log)
    for sent in log.history.sent:
        record = sent.record
        run_id = (record.key or b"").decode()
        if record.topic == RESPONSES:
            run_id = from_json(record.value or b"{}")["run_id"]
        elif not (record.topic == EVENTS and b'"run-ticked"' in (record.value or b"")):
            continue
        tp, offset = offsets.get(run_id, (TopicPartition(EVENTS, -1), 0))
        owner = owned.of(sent.process, tp, sent.at)
        if owner is not None and offset < (owner.committed if record.topic == RESPONSES else owner.end):
            yield f"{sent.process}: sent to {record.topic} for {run_id}, which was over when it took over"


class _Ownership:
    """Which assignment a process acted under."""

    def __init__(self, log: Log) -> None:
        self._assignments = [each for each in log.history.assignments if each.group == AGGREGATOR_GROUP]

    def of(self, process: str, tp: TopicPartition, at: int) -> Assigned | None:
        found = [a for a in self._assignments if (a.process, a.tp) == (process, tp) and a.at <= at]
        return found[-1] if found else None


def behind(log: Log) -> Iterator[str]:
    """In the end every group has committed everything."""
    for group, commits in log.history.groups.items():
        for tp, commit in commits.items():
            records = [record for record in log.history.records[tp.topic] if record.tp == tp]
            if tp.topic != FLEET and commit.offset != len(records):
                yield f"{group}: {tp} stands at {commit.offset} of {len(records)}"


CHECKS: Sequence[Callable[[Log], Iterator[str]]] = (
    trouble,
    lost,
    conflicting,
    late,
    unmarked,
    wrong_request,
    wrong_join,
    foreign,
    wrong_charge,
    wrong_outcome,
    not_as_rebuilt,
    acted_on_the_past,
    committed_too_far,
    behind,
)
