"""Of all that happens to runs, what scaling asks for; cheaply."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import schemas
from schemas import headers
from schemas.base import Output, Priority, RunStatus
from schemas.events import EVENT, Event, RequestCoordinates, RunFinished, RunStarted, StepCompleted, StepSkipped
from schemas.graphs import Graph, Step
from schemas.topics import EVENTS
from services.autoscaler.domain.branches import Branches, backend_of
from services.autoscaler.domain.open_runs import OpenRuns
from services.autoscaler.runs import RunFollower
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import ConsumerSettings, Record, TopicPartition
from tests.unit.autoscaler.graphs import call, gate, graph

EXAMPLES = Path(schemas.__file__).parent / "examples/events"
GOLDEN = EXAMPLES / "run-finished.json"
ASK = graph(gate("safe"), call("embed", "embedding"), call("answer", "llm", when="${true}"))


class Following:
    """A follower, what it has told, and the log it reads."""

    def __init__(self) -> None:
        self.runs = OpenRuns(Branches())
        self.needed: list[set[str]] = []
        self._follower = RunFollower(self.runs, self._on_needs)

    def read(self, *events: Event) -> None:
        self._follower.add([record(event) for event in events])

    def _on_needs(self, steps: Sequence[Step]) -> None:
        self.needed.append(set(map(backend_of, steps)))

    def open(self) -> set[str]:
        """The classes that open runs may call."""
        return set(self.runs.needs())


def record(event: Event) -> Record:
    sent = run_record(EVENTS, event)
    return Record(EVENTS, 0, 0, 0, sent.key, sent.value, sent.headers)


def started(run_id: str, planned: Graph = ASK) -> RunStarted:
    planned = planned.model_copy(update={"output": "${input}"})
    return RunStarted(
        run_id=run_id, tenant="t", request_id=run_id, body_digest="d", response_topic="r", priority=Priority.STANDARD,
        request=RequestCoordinates(topic="q", partition=0, offset=0, log_time=0), input=Output(value=1),
        deadline_at=60_000, graph=planned, graph_digest=planned.pipeline,
    )  # fmt: skip


def completed(run_id: str, step: str) -> StepCompleted:
    return StepCompleted(run_id=run_id, tenant="t", step=step, attempt=1, output=Output(value="x" * 100))


def finished(run_id: str, status: RunStatus) -> RunFinished:
    """As in the golden message, but for its run and its status."""
    golden = RunFinished.model_validate_json(GOLDEN.read_bytes())
    response = golden.response.model_copy(update={"status": status})
    return golden.model_copy(update={"run_id": run_id, "response": response})


def test_a_run_that_starts_says_what_it_will_call() -> None:
    following = Following()
    following.read(started("a"))
    assert following.needed == [{"embedding", "llm"}]
    assert following.open() == {"embedding", "llm"}


def test_it_reads_the_events_of_the_log() -> None:
    following = Following()
    begun = EVENT.validate_json((EXAMPLES / "run-started.json").read_text())
    following.read(begun)
    assert following.open() == {"classifier", "embedding", "llm"}
    for name, step in (("step-completed", "embed"), ("step-failed", "guard"), ("step-skipped", "phrase")):
        event = EVENT.validate_json((EXAMPLES / f"{name}.json").read_text())
        following.read(event.model_copy(update={"run_id": begun.run_id, "step": step}))
    assert following.open() == set()


def test_what_was_called_or_skipped_is_called_no_more() -> None:
    following = Following()
    following.read(started("a"), completed("a", "safe"), completed("a", "embed"))
    assert following.open() == {"llm"}
    following.read(StepSkipped(run_id="a", tenant="t", step="answer", attempt=1))
    assert following.open() == set()


@pytest.mark.parametrize(("status", "teaches"), [(RunStatus.SUCCEEDED, True), (RunStatus.CANCELLED, False)])
def test_what_a_run_did_not_come_to_teaches_only_if_it_went_its_way(status: RunStatus, teaches: bool) -> None:
    following = Following()
    for number in range(30):
        following.read(started(str(number)), finished(str(number), status))
    assert following.open() == set()
    following.read(started("last"))
    assert (following.runs.needs()["llm"].probability < 0.1) == teaches


def test_runs_of_another_version_with_the_same_name_have_their_own_graph() -> None:
    following = Following()
    other = graph(call("only", "sql"), pipeline="other")
    following.read(started("a"), started("b", other), started("c"))
    assert following.needed == [{"embedding", "llm"}, {"sql"}, {"embedding", "llm"}]


def test_what_cannot_be_read_says_nothing() -> None:
    following = Following()
    known = record(started("a"))
    broken = (
        Record(EVENTS, 0, 0, 0, None, b"{", ((headers.MESSAGE_TYPE, b"run-started"), (headers.RUN_ID, b"a"))),
        Record(EVENTS, 0, 0, 0, None, known.value, ()),
        Record(EVENTS, 0, 0, 0, None, None, known.headers),
        Record(EVENTS, 0, 0, 0, None, known.value, ((headers.MESSAGE_TYPE, b"run-exploded"), (headers.RUN_ID, b"a"))),
    )
    following._follower.add(broken)
    assert following.open() == set()


async def test_runs_that_are_read_back_are_open_and_no_burst() -> None:
    kafka = InMemoryKafka(lambda: 0)
    kafka.create_topic(EVENTS, 1)
    for number in range(1_200):
        kafka.append(TopicPartition(EVENTS, 0), run_record(EVENTS, started(str(number)), partition=0))
    reader = LogReader(lambda listener: kafka.consumer(ConsumerSettings(None, (EVENTS,)), listener), tail=1_000)
    await reader.start()
    following = Following()
    following.read(started("first"))
    for second in range(6):
        following.runs.calls_per_s(1_000 * second)
    await following._follower.catch_up(reader)
    await reader.stop()
    rates = [following.runs.calls_per_s(1_000 * second) for second in range(6, 15)]
    assert following.runs.needs()["embedding"].calls == 1_001
    assert rates == [{"embedding": 0.0, "llm": 0.0}] * 9
