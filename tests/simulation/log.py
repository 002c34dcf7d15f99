"""A history's log, decoded and indexed for the checks. Nothing here knows the services' code."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from pydantic_core import from_json

from schemas import headers
from schemas.base import Json, Output
from schemas.events import EVENT, AttemptEvent, Event, RunFinished, RunRejected, RunStarted
from schemas.topics import EVENTS, JOINS, RESPONSES, TASKS, USAGE
from services.chassis.kafka.types import Record, TopicPartition
from tests.simulation.simulation import History

NEVER = 1 << 62


class Logged(NamedTuple):
    """An event and its record."""

    record: Record
    event: Event

    @property
    def stamp(self) -> int:
        return self.record.timestamp


@dataclass(frozen=True)
class Log:
    """Events, responses and bills by run; records by what they are evidence of."""

    history: History

    @cached_property
    def events(self) -> Sequence[Logged]:
        """All events, in the order of their stamps."""
        return [Logged(record, EVENT.validate_json(record.value or b"")) for record in self.history.records[EVENTS]]

    @cached_property
    def by_run(self) -> Mapping[str, Sequence[Logged]]:
        """Events of each run."""
        found: defaultdict[str, list[Logged]] = defaultdict(list)
        for logged in self.events:
            found[logged.event.run_id].append(logged)
        return found

    @cached_property
    def by_partition(self) -> Mapping[TopicPartition, Sequence[Logged]]:
        """Events of each partition, by offset."""
        found: defaultdict[TopicPartition, list[Logged]] = defaultdict(list)
        for logged in self.events:
            found[logged.record.tp].append(logged)
        return found

    @cached_property
    def responses(self) -> Mapping[str, Sequence[Record]]:
        """By request id."""
        return _by_key(self.history.records[RESPONSES])

    @cached_property
    def bills(self) -> Mapping[str, Sequence[Record]]:
        """By run id."""
        found: defaultdict[str, list[Record]] = defaultdict(list)
        for record in self.history.records[USAGE]:
            found[from_json(record.value or b"{}")["run_id"]].append(record)
        return found

    def opening(self, run_id: str) -> RunStarted | RunRejected | None:
        """The first of a run's openings: the one that counts."""
        openings = (logged.event for logged in self.by_run.get(run_id, ()))
        return next((event for event in openings if isinstance(event, RunStarted | RunRejected)), None)

    def finish(self, run_id: str) -> Logged | None:
        """The first `run-finished` of a run: the one that counts."""
        return next((logged for logged in self.by_run.get(run_id, ()) if isinstance(logged.event, RunFinished)), None)

    def value(self, output: Output) -> Json:
        """Wherever it is."""
        return output.value if output.ref is None else from_json(self.history.blobs[output.ref.sha256])

    @cached_property
    def tasks(self) -> Sequence[Record]:
        """Of every queue."""
        topics = [topic for topic in self.history.records if topic.startswith(TASKS) and not topic.endswith("-dlq")]
        return [record for topic in topics for record in self.history.records[topic]]

    @cached_property
    def ready_at(self) -> Mapping[str, int]:
        """When each task id was first said to be ready."""
        return _first_by_header(self.history.records[JOINS], headers.TASK_ID)

    @cached_property
    def task_at(self) -> Mapping[str, int]:
        """When each task id first came to a queue."""
        return _first_by_header(sorted(self.tasks, key=lambda record: record.timestamp), headers.TASK_ID)

    @cached_property
    def letter_at(self) -> Mapping[tuple[TopicPartition, int], int]:
        """When the record at these coordinates was first dead-lettered."""
        found: dict[tuple[TopicPartition, int], int] = {}
        for origin, letter in self.letters():
            found.setdefault(origin, letter.timestamp)
        return found

    def letters(self) -> Iterator[tuple[tuple[TopicPartition, int], Record]]:
        """Dead letters, with the coordinates of what they are about."""
        for topic, records in self.history.records.items():
            for letter in records if topic.endswith("-dlq") else ():
                partition, offset = (
                    letter.header(headers.X_ORIGINAL_PARTITION),
                    letter.header(headers.X_ORIGINAL_OFFSET),
                )
                origin = TopicPartition(letter.header(headers.X_ORIGINAL_TOPIC) or "", int(partition or 0))
                yield (origin, int(offset or 0)), letter

    @cached_property
    def attempt_at(self) -> Mapping[tuple[str, str, int], int]:
        """When something was first said of an attempt: of a run's step."""
        found: dict[tuple[str, str, int], int] = {}
        for logged in self.events:
            event: Any = logged.event
            if hasattr(event, "attempt"):
                found.setdefault((event.run_id, event.step, event.attempt), logged.stamp)
        return found

    @cached_property
    def admitted_at(self) -> Mapping[tuple[TopicPartition, int], int]:
        """When the request at these coordinates was first admitted or rejected."""
        found: dict[tuple[TopicPartition, int], int] = {}
        for logged in self.events:
            if isinstance(logged.event, RunStarted | RunRejected):
                request = logged.event.request
                found.setdefault((TopicPartition(request.topic, request.partition), request.offset), logged.stamp)
        return found

    def charged(self, run_id: str, before: int) -> Iterator[AttemptEvent]:
        """The first event of each attempt that ran on a worker, up to the record that decided the run."""
        seen: set[tuple[str, int]] = set()
        for logged in self.by_run.get(run_id, ()):
            event = logged.event
            if logged.stamp > before or not isinstance(event, AttemptEvent) or event.model_class is None:
                continue
            if (event.step, event.attempt) not in seen:
                seen.add((event.step, event.attempt))
                yield event


def _by_key(records: Sequence[Record]) -> Mapping[str, Sequence[Record]]:
    found: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[(record.key or b"").decode()].append(record)
    return found


def _first_by_header(records: Sequence[Record], name: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for record in records:
        found.setdefault(record.header(name) or "", record.timestamp)
    return found
