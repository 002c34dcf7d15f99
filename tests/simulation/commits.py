"""No commit passes a record before what came of it stands in the log."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from schemas import headers, ids
from schemas.events import StepCompleted
from schemas.topics import (
    AGGREGATOR_GROUP,
    IDEMPOTENCY_WINDOW_MS,
    JOINS,
    ORCHESTRATOR_JOINS_GROUP,
    ORCHESTRATOR_REQUESTS_GROUP,
)
from services.aggregator.domain.decisions import DeadLetter, Decision, Dispatch, Finish, Publish
from services.aggregator.domain.fold import LogRecord, fold
from services.aggregator.domain.outcomes import reaches_output
from services.aggregator.domain.state import Partition
from services.chassis.kafka.types import TopicPartition
from tests.simulation.log import NEVER, Log
from tests.simulation.reference import amounts_to

Effects = Mapping[tuple[TopicPartition, int], int]
"""By a record's coordinates: the stamp of the last record that had to come of it. Absent: nothing had to."""
Attempts = defaultdict[tuple[str, str], list[tuple[int, int]]]
"""By run and step: each attempt, and a stamp at which it was there."""


def committed_too_far(log: Log) -> Iterator[str]:
    """Each commit against the effects of all records before it."""
    effects: dict[str, Effects] = {}
    reached: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
    for commit in log.history.commits:
        if commit.group not in effects:
            effects[commit.group] = _effects_of(commit.group)(log)
        offset, latest = reached.get((commit.group, commit.tp), (0, 0))
        for passed in range(offset, commit.offset):
            latest = max(latest, effects[commit.group].get((commit.tp, passed), 0))
        reached[commit.group, commit.tp] = max(offset, commit.offset), latest
        if latest > commit.at:
            what = "never came" if latest == NEVER else f"came {latest - commit.at} ms later"
            yield f"{commit.group}: {commit.tp} committed at {commit.offset}, and something of before {what}"
            return


def _effects_of(group: str) -> Callable[[Log], Effects]:
    known = {
        ORCHESTRATOR_REQUESTS_GROUP: _of_requests,
        ORCHESTRATOR_JOINS_GROUP: _of_joins,
        AGGREGATOR_GROUP: _of_events,
    }
    return known.get(group, _of_tasks)


def _of_requests(log: Log) -> Effects:
    """An opening, or a dead letter."""
    return {
        (tp, offset): min(log.admitted_at.get((tp, offset), NEVER), log.letter_at.get((tp, offset), NEVER))
        for asked in log.history.asked
        for tp, offset in asked.accepted
    }


def _of_joins(log: Log) -> Effects:
    """A task, or an event about the attempt."""
    found = {}
    for record in log.history.records[JOINS]:
        task_id = record.header(headers.TASK_ID) or ""
        event_at = log.attempt_at.get(ids.parse_task_id(task_id), NEVER)
        found[record.tp, record.offset] = min(log.task_at.get(task_id, NEVER), event_at)
    return found


def _of_tasks(log: Log) -> Effects:
    """An event about the attempt; or a newer attempt makes it void, or the record that decided the run's end."""
    attempts = {
        (record.tp, record.offset): ids.parse_task_id(record.header(headers.TASK_ID) or "") for record in log.tasks
    }
    newer = _newer(log)
    return {place: _void_at(log, attempt, newer) for place, attempt in attempts.items()}


def _newer(log: Log) -> Attempts:
    """The attempts of each step, and when they came to be."""
    found: Attempts = defaultdict(list)
    for task_id, stamp in [*log.ready_at.items(), *log.task_at.items()]:
        run_id, step, attempt = ids.parse_task_id(task_id)
        found[run_id, step].append((attempt, stamp))
    return found


def _void_at(log: Log, of: tuple[str, str, int], newer: Attempts) -> int:
    run_id, step, attempt = of
    run = amounts_to(run_id, [(logged.stamp, logged.event) for logged in log.by_run.get(run_id, ())])
    stamps = [stamp for other, stamp in newer[run_id, step] if other > attempt]
    said = log.attempt_at.get((run_id, step, attempt), NEVER)
    return min([said, NEVER if run.status is None else run.decided_at, *stamps])


def _of_events(log: Log) -> Effects:
    """What the fold decides. An outcome may be late, when its output has to be read from the store."""
    decided: dict[tuple[TopicPartition, int], Sequence[Decision]] = {}
    newer = _newer(log)
    for tp, events in log.by_partition.items():
        partition = Partition.empty(IDEMPOTENCY_WINDOW_MS)
        for logged in events:
            partition, decisions = fold(partition, LogRecord(logged.stamp, logged.event))
            decided[tp, logged.record.offset] = decisions
            for each in decisions:
                if isinstance(each, Dispatch):  # older attempts are void from this record on
                    newer[each.ready.run_id, each.ready.step.id].append((each.ready.attempt, logged.stamp))
    return {
        place: max((_carried_out_at(log, decision, newer) for decision in decisions), default=0)
        for place, decisions in decided.items()
    }


def _completed_at(log: Log, run_id: str, step: str) -> list[int]:
    """By whichever attempt: then none need be made ready."""
    events = [(logged.stamp, logged.event) for logged in log.by_run.get(run_id, ())]
    return [stamp for stamp, event in events if isinstance(event, StepCompleted) and event.step == step]


def _carried_out_at(log: Log, decision: Decision, newer: Attempts) -> int:
    if isinstance(decision, Dispatch):
        ready = decision.ready
        past_at = _void_at(log, (ready.run_id, ready.step.id, ready.attempt), newer)
        return min(
            [log.ready_at.get(ready.task_id, NEVER), past_at, *_completed_at(log, ready.run_id, ready.step.id)]
        )
    if isinstance(decision, Publish):
        response = log.responses.get(decision.finished.response.request_id, ())
        bill = log.bills.get(decision.finished.run_id, ())
        return max((records[0].timestamp if records else NEVER) for records in (response, bill))
    if isinstance(decision, DeadLetter):
        origin = TopicPartition(decision.request.topic, decision.request.partition), decision.request.offset
        return log.letter_at.get(origin, NEVER)
    assert isinstance(decision, Finish)
    marker = None if reaches_output(decision.run) else log.finish(decision.run.run_id)
    return marker.stamp if marker is not None else 0
