"""One trace a run: its shape and its times, as a collector gets them, against what the log says."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
import yaml

from headway.testing import InProcessPlane, in_process
from schemas import headers
from schemas.base import RunStatus
from schemas.events import EVENT, Event, RunFinished, StepCompleted
from schemas.topics import EVENTS, JOINS, REQUESTS, RESPONSES, USAGE
from services.aggregator.domain.decisions import Publish
from services.aggregator.domain.fold import LogRecord, fold
from services.aggregator.domain.state import Partition
from services.aggregator.spans import spans
from services.chassis.kafka.types import Outgoing
from services.chassis.tracing import Span, Tracer, span_id, tracing
from tests.otlp import Collector, Received, collector

QUICK_MS, SLOW_MS = 20, 60
CLIENTS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"

DIAMOND: list[dict[str, Any]] = [
    {"id": "read", "model_class": "quick"},
    {"id": "left", "model_class": "quick", "after": ["read"]},
    {"id": "right", "model_class": "slow", "after": ["read"]},
    {"id": "joined", "value": {"l": "${steps.left}", "r": "${steps.right}"}},
]
SERVED = ("read#1", "left#1", "right#1")


def simulated(latency_ms: float, **more: Any) -> dict[str, Any]:
    engine = {"kind": "simulated", "latency_ms": latency_ms, "output": {"text": "yes"}, **more}
    return {"backends": [{"name": "local", "engine": engine}], "slots": 4}


def configuration(folder: Path, steps: list[dict[str, Any]]) -> Path:
    models = {"quick": simulated(QUICK_MS), "slow": simulated(SLOW_MS), "broken": simulated(1, error_rate=1)}
    pipeline = {"name": "ask", "deadline": "30s", "input": {"type": "object"}, "output": {}, "steps": steps}
    (folder / "pipelines").mkdir()
    (folder / "models.yaml").write_text(yaml.safe_dump({"model_classes": models}))
    (folder / "pipelines" / "ask.yaml").write_text(yaml.safe_dump(pipeline))
    return folder


class Told(list[Span]):
    """A tracer that remembers, and hands on."""

    def __init__(self, to: Tracer | None = None) -> None:
        super().__init__()
        self._to = to

    def samples(self, run_id: str) -> bool:
        return self._to is None or self._to.samples(run_id)

    def record(self, spans: Iterable[Span]) -> None:
        new = list(spans)
        self.extend(new)
        if self._to is not None:
            self._to.record(new)


class Traced(NamedTuple):
    """A plane whose spans are with a collector once it has ended."""

    plane: InProcessPlane
    collector: Collector
    told: Told

    async def served(self, *attempts: str) -> None:
        """A worker tells of an attempt once it has marked it as done, which may be after the run's end."""
        services = {f"service/{attempt}" for attempt in attempts}
        await self.plane._until(lambda: services <= {span.name for span in self.told}, 10)

    async def ask(self, body: bytes = b'{"pipeline": "ask", "input": {}}', traceparent: str = "") -> None:
        """A request as any client may send it; returns when it is answered."""
        sent = Outgoing(REQUESTS, body, None, ((headers.TRACEPARENT, traceparent.encode()),))
        await self.plane._producer.send_all([sent])
        await self.plane._until(lambda: bool(self.plane._kafka.records(RESPONSES)), 10)


@asynccontextmanager
async def traced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Traced]:
    with collector() as there:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", there.endpoint)
        with tracing("plane", "p1") as tracer:
            told = Told(tracer)
            async with in_process(folder, tracer=told) as plane:
                yield Traced(plane, there, told)


def hexadecimal(run_id: str, name: str) -> str:
    return f"{span_id(run_id, name):016x}"


def tree(found: Sequence[Received]) -> list[tuple[str, str]]:
    """Each span and its parent, as people read them; the empty string for none."""
    titles = {received.span.span_id: received.span.name for received in found}
    return sorted((received.span.name, titles.get(received.span.parent_span_id, "")) for received in found)


def stamped(plane: InProcessPlane, run_id: str) -> list[tuple[int, Event]]:
    """The log of a run, with the broker's times."""
    records = [record for record in plane._kafka.records(EVENTS) if record.key == run_id.encode()]
    return [(record.timestamp, EVENT.validate_json(record.value or b"")) for record in records]


def carried(plane: InProcessPlane) -> set[str | None]:
    """What the records of all topics within and after the plane say of their trace."""
    topics = [EVENTS, JOINS, "inference-tasks-quick", "inference-tasks-slow", RESPONSES, USAGE]
    records = [record for topic in topics for record in plane._kafka.records(topic)]
    assert {record.topic for record in records} == set(topics)
    return {record.header(headers.TRACEPARENT) for record in records}


async def test_a_run_is_one_trace_with_links_at_the_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with traced(configuration(tmp_path, DIAMOND), monkeypatch) as at:
        response = await at.plane.run("ask", {})
        await at.served(*SERVED)
    found = at.collector.received
    assert response.status is RunStatus.SUCCEEDED
    assert {received.span.trace_id for received in found} == {UUID(response.run_id).bytes}
    steps = [f"step {step}" for step in ("read", "left", "right", "joined")]
    assert tree(found) == sorted(
        [
            ("run ask", ""),
            *((name, "run ask") for name in ("admission", *steps, "response")),
            *((f"{part} quick", step) for part in ("queue", "service") for step in ("step read", "step left")),
            *((f"{part} slow", "step right") for part in ("queue", "service")),
        ]
    )
    links = {received.span.name: {link.span_id.hex() for link in received.span.links} for received in found}
    assert links["step joined"] == {hexadecimal(response.run_id, f"step/{need}") for need in ("left", "right")}
    assert links["step left"] == links["step right"] == {hexadecimal(response.run_id, "step/read")}
    assert links["step read"] == set()


async def test_its_times_are_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with traced(configuration(tmp_path, DIAMOND), monkeypatch) as at:
        response = await at.plane.run("ask", {})
        await at.served(*SERVED)
    found = {received.span.span_id.hex(): received for received in at.collector.received}
    log = stamped(at.plane, response.run_id)

    def of(name: str) -> Received:
        return found[hexadecimal(response.run_id, name)]

    (asked,) = at.plane._kafka.records(REQUESTS)
    (finished_at,) = [stamp for stamp, event in log if isinstance(event, RunFinished)]
    assert (of("run").began_ms, of("run").ended_ms) == (asked.timestamp, finished_at)
    assert of("run").attributes["headway.total_ms"] == response.timing.total_ms

    ended = {event.step: (stamp, event) for stamp, event in log if isinstance(event, StepCompleted)}
    for step, latency_ms in (("read", QUICK_MS), ("left", QUICK_MS), ("right", SLOW_MS)):
        over_at, event = ended[step]
        queue, service = of(f"queue/{step}#1"), of(f"service/{step}#1")
        assert of(f"step/{step}").ended_ms == over_at
        assert queue.began_ms == event.task_at
        assert queue.ended_ms == service.began_ms
        assert service.ms == pytest.approx(event.service_ms, abs=0.01)
        assert service.ms >= latency_ms
    assert of("step/joined").began_ms == max(ended["left"][0], ended["right"][0]), "the join waits for both"


async def test_every_attempt_has_spans_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = {"id": "look", "model_class": "broken", "max_attempts": 2, "fallback": [{"value": "${{'found': 1}}"}]}
    async with traced(configuration(tmp_path, [step]), monkeypatch) as at:
        response = await at.plane.run("ask", {})
        await at.served("look#1", "look#2")
    services = [received for received in at.collector.received if received.span.name == "service broken"]
    assert {(received.span.span_id.hex(), received.attributes["headway.attempt"]) for received in services} == {
        (hexadecimal(response.run_id, f"service/look#{attempt}"), attempt) for attempt in (1, 2)
    }
    assert {received.error for received in services} == {"engine_failed"}
    (found,) = [received for received in at.collector.received if received.span.name == "step look"]
    assert found.error is None, "its fallback succeeded"
    assert (found.attributes["headway.attempts"], found.attributes["headway.fallback"]) == (3, 1)


async def test_a_rejected_request_is_a_trace_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with traced(configuration(tmp_path, DIAMOND), monkeypatch) as at:
        await at.ask(b'{"pipeline": "my secret plan"}')
    found = at.collector.received
    errors = {received.span.name: received.error for received in found}
    assert errors == {"admission": "invalid_request", "run unknown": "invalid_request", "response": None}
    assert not any(b"secret" in received.span.SerializeToString() for received in found)


async def test_a_clients_trace_goes_on_through_every_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with traced(configuration(tmp_path, DIAMOND), monkeypatch) as at:
        await at.ask(traceparent=f"{CLIENTS}-01")
        assert carried(at.plane) == {f"{CLIENTS}-01"}
    _, trace_id, caller = CLIENTS.split("-")
    assert {received.span.trace_id.hex() for received in at.collector.received} == {trace_id}
    (run,) = [received.span for received in at.collector.received if received.span.name == "run ask"]
    assert run.parent_span_id.hex() == caller


async def test_a_client_that_wants_no_trace_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with traced(configuration(tmp_path, DIAMOND), monkeypatch) as at:
        await at.ask(traceparent=f"{CLIENTS}-00")
        assert carried(at.plane) == {f"{CLIENTS}-00"}
    assert at.told == [], "not even made"


async def test_whoever_folds_the_log_again_tells_the_same_spans(tmp_path: Path) -> None:
    told, again = Told(), Told()
    async with in_process(configuration(tmp_path, DIAMOND), tracer=told) as plane:
        response = await plane.run("ask", {})
        assert len(carried(plane)) == 1, "the trace travels where no client began it, too"
    state = Partition.empty(3_600_000)
    for stamp, event in stamped(plane, response.run_id):
        state, decisions = fold(state, LogRecord(stamp, event))
        for decision in decisions:
            if isinstance(decision, Publish):
                again.record(spans(decision.run, decision.finished, stamp))
    names = ["run", "step/read", "step/left", "step/right", "step/joined", "response"]
    assert [span.name for span in again] == names
    assert again == [span for span in told if span.name in names]


async def test_a_plane_without_traces_begins_none(tmp_path: Path) -> None:
    async with in_process(configuration(tmp_path, DIAMOND)) as plane:
        await plane.run("ask", {})
        assert carried(plane) == {None}
