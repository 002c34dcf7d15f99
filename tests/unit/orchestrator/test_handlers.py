"""Admission and dispatch as handlers of streams: whatever one record holds, its neighbours go on."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_core import to_json

from schemas import ids
from schemas.base import BlobRef, Json, Output, Priority
from schemas.errors import DeadLetterReason, ErrorCode
from schemas.events import EVENT, Event, RunRejected, RunStarted, StepCompleted, StepFailed
from schemas.fleet import BreakerState, CircuitState, WorkerStatus
from schemas.graphs import Graph, Step, StepKind, Target
from schemas.joins import StepReady
from schemas.models import Backend, ModelClass, Queue, SimulatedEngine, queues
from schemas.tasks import InferenceTask, Price
from schemas.topics import MAX_RECORD_BYTES
from services.chassis.blobs import BlobUnavailableError, InMemoryBlobStore, Outputs
from services.chassis.clock import LogClock
from services.chassis.expressions import compile_template
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.messages import encode
from services.chassis.kafka.stream import BatchHandler, Stream
from services.chassis.kafka.types import ConsumerSettings, Outgoing, Record, TopicPartition
from services.chassis.metrics import Metrics
from services.orchestrator.handlers import Admission, Dispatch
from tests.unit.orchestrator.gates import gate
from tests.unit.orchestrator.test_admission import ASK, GRAPH, FakeCatalog, FakePipeline

REQUESTS, JOINS, EVENTS = "inference-requests", "inference-joins", "inference-events"
RUN = ids.run_id("default", "r1")
LARGE = {"question": "x" * 20_000}


class Explosive(FakeCatalog):
    """Fails at one pipeline, in a way nobody foresaw."""

    def pipeline(self, reference: str) -> FakePipeline | None:
        if reference == "bomb":
            raise ZeroDivisionError("my secret prompt")
        return super().pipeline(reference)


@dataclass(frozen=True)
class Vast(FakePipeline):
    graph: Graph = field(default_factory=lambda: GRAPH.model_copy(update={"output": "x" * MAX_RECORD_BYTES}))


class VastCatalog(FakeCatalog):
    def pipeline(self, reference: str) -> FakePipeline | None:
        return Vast() if reference == "vast" else super().pipeline(reference)


class HungStore(InMemoryBlobStore):
    """Gives up on whatever it is asked once everyone it waits for has asked."""

    def __init__(self, crowd: int) -> None:
        super().__init__()
        self.barrier = asyncio.Barrier(crowd)

    async def put(self, content: bytes) -> BlobRef:
        await self.barrier.wait()
        raise BlobUnavailableError("no answer within 5 s")


def request(body: Any, offset: int = 0) -> Record:
    value = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Record(REQUESTS, 0, offset, 1_000, f"r{offset}".encode(), value)


def admission(catalog: FakeCatalog | None = None, store: InMemoryBlobStore | None = None) -> Admission:
    found = catalog or FakeCatalog()
    return Admission(lambda: found, Outputs(store or InMemoryBlobStore()), LogClock(), Metrics(), gate())


async def outcomes(handler: BatchHandler, *records: Record) -> list[list[Outgoing]]:
    found = await handler.handle(records)
    assert [record for record, _ in found] == list(records)
    return [list(outgoing) for _, outgoing in found]


def event(outgoing: Outgoing) -> Event:
    assert outgoing.topic == EVENTS
    return EVENT.validate_json(outgoing.value or b"")


def told(letter: Outgoing) -> dict[str, str]:
    assert letter.topic.endswith("-dlq")
    return {name: value.decode() for name, value in letter.headers}


# ---- admission ----


async def test_every_request_of_a_batch_has_its_outcome_in_order() -> None:
    bodies = [ASK, {**ASK, "input": LARGE}, b"hello", {**ASK, "pipeline": "nope"}, ASK]
    found = await outcomes(admission(), *(request(body, offset) for offset, body in enumerate(bodies)))
    first, large, letter, refused, last = (one for (one,) in found)
    for offset, outgoing in ((0, first), (1, large), (4, last)):
        started = event(outgoing)
        assert isinstance(started, RunStarted)
        assert started.request.offset == offset
        assert (started.input.ref is not None) == (outgoing is large)
    assert told(letter)["x-error-class"] == DeadLetterReason.UNDECODABLE
    assert isinstance(event(refused), RunRejected)


async def test_a_run_too_large_for_its_first_record_is_rejected() -> None:
    poisoned, fine = await outcomes(
        admission(VastCatalog()), request({**ASK, "pipeline": "vast"}), request(ASK, offset=1)
    )
    rejected = event(poisoned[0])
    assert isinstance(rejected, RunRejected)
    assert rejected.error.code is ErrorCode.CONTENT_TOO_LARGE
    assert "graph" in rejected.error.message
    assert isinstance(event(fine[0]), RunStarted)


async def test_a_rejection_too_large_for_a_record_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.handlers.fits", lambda outgoing: outgoing.topic != EVENTS)
    ((letter,),) = await outcomes(admission(), request(ASK))
    assert told(letter)["x-error-class"] == DeadLetterReason.INVALID


async def test_a_request_at_which_the_code_fails_is_dead_lettered_and_answered_and_its_neighbours_go_on() -> None:
    poison = request({**ASK, "pipeline": "bomb"}, offset=1)
    before, (letter, answer), after = await outcomes(
        admission(Explosive()), request(ASK), poison, request(ASK, offset=2)
    )
    assert (told(letter)["x-error-class"], told(letter)["x-error-msg"]) == ("poison", "ZeroDivisionError")
    assert letter.value == poison.value
    rejected = event(answer)
    assert isinstance(rejected, RunRejected)
    assert (rejected.error.code, rejected.error.retryable, rejected.request_id) == (ErrorCode.INTERNAL, False, "r1")
    assert all(isinstance(event(one), RunStarted) for (one,) in (before, after))


async def test_poison_that_cannot_even_be_answered_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("services.orchestrator.domain.admission._digest", fail)
    ((letter,),) = await outcomes(admission(), request(ASK))
    assert told(letter)["x-error-class"] == DeadLetterReason.POISON


async def test_a_hung_store_delays_a_batch_once_and_not_once_a_record() -> None:
    small = request(ASK)
    large = [request({**ASK, "input": LARGE}, offset) for offset in range(1, 41)]
    async with asyncio.timeout(5):
        found = await outcomes(admission(store=HungStore(40)), small, *large)
    assert isinstance(event(found[0][0]), RunStarted)
    for (outgoing,) in found[1:]:
        rejected = event(outgoing)
        assert isinstance(rejected, RunRejected)
        assert (rejected.error.code, rejected.error.retryable) == (ErrorCode.INTERNAL, True)


async def test_small_requests_cost_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a task was made")

    monkeypatch.setattr(asyncio, "gather", fail)
    assert len(await outcomes(admission(), *(request(ASK, offset) for offset in range(10)))) == 10


def test_no_request_that_counts_as_small_has_an_input_that_needs_a_claim_check() -> None:
    numbers = "[" + "1e15," * 810 + "1e15]"
    assert len(numbers) <= 16_384 // 4
    assert len(to_json(json.loads(numbers))) <= 16_384


async def test_what_a_rejected_request_calls_its_pipeline_is_no_metric_label() -> None:
    metrics = Metrics()
    handler = Admission(FakeCatalog, Outputs(InMemoryBlobStore()), LogClock(), metrics, gate())
    handler.expect([REQUESTS])
    exposed = metrics.exposition().decode()
    assert f'headway_dead_letters_total{{reason="poison",topic="{REQUESTS}"}} 0.0' in exposed
    await outcomes(handler, request({**ASK, "pipeline": "made-up"}), request(b"hello"), request(ASK))
    exposed = metrics.exposition().decode()
    assert "made-up" not in exposed
    assert f'headway_dead_letters_total{{reason="undecodable",topic="{REQUESTS}"}} 1.0' in exposed
    assert 'headway_requests_total{pipeline="ask",priority="interactive"} 1.0' in exposed


# ---- dispatch ----

CLASSES = {
    "llm": ModelClass(
        backends=(Backend(name="default", engine=SimulatedEngine(kind="simulated", latency_ms=1.0, output={})),)
    )
}


class FakeConfig(FakeCatalog):
    queues: Mapping[tuple[str, str], Queue] = {(queue.model_class, queue.backend): queue for queue in queues(CLASSES)}


def ready(step: Step, **changes: Any) -> StepReady:
    given: dict[str, Any] = {
        "run_id": RUN,
        "tenant": "default",
        "task_id": ids.task_id(RUN, step.id, 1),
        "pipeline": "ask",
        "step": step,
        "target": step.chain[0] if step.chain else Target(),
        "fallback": 0,
        "attempt": 1,
        "priority": Priority.STANDARD,
        "deadline_at": 31_000,
        "step_deadline_at": 31_000,
        "ready_at": 1_000,
    }
    return StepReady(**{**given, **changes})


def step(written: Json, kind: StepKind = StepKind.MODEL) -> Step:
    chain = (Target(model_class="llm"),) if kind is StepKind.MODEL else ()
    return Step(id="a", kind=kind, chain=chain, input=written)


def join(message: StepReady | bytes, offset: int = 0, headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    value = message if isinstance(message, bytes) else encode(message)
    return Record(JOINS, 0, offset, 1_000, RUN.encode(), value, headers)


def dispatch(store: InMemoryBlobStore | None = None) -> Dispatch:
    config = FakeConfig()
    return Dispatch(lambda: config, Outputs(store or InMemoryBlobStore()), LogClock(), Metrics())


def failure(outgoing: Outgoing) -> StepFailed:
    failed = event(outgoing)
    assert isinstance(failed, StepFailed)
    return failed


async def test_ready_steps_become_tasks_values_and_claim_checks_in_order() -> None:
    asked = {"input": Output(value=LARGE)}
    small, large, value = await outcomes(
        dispatch(),
        join(ready(step({"q": "why"}))),
        join(ready(step("${input}"), **asked), offset=1),
        join(ready(step(7, StepKind.VALUE)), offset=2),
    )
    tasks = [InferenceTask.model_validate_json(one[0].value or b"") for one in (small, large)]
    assert tasks[0].input == {"q": "why"}
    assert tasks[1].input_ref is not None
    completed = event(value[0])
    assert isinstance(completed, StepCompleted)
    assert completed.output.value == 7


async def test_a_step_at_which_the_code_fails_is_dead_lettered_and_failed_for_good_and_its_neighbours_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def explode(written: Json, _: object) -> Any:
        if written == "bomb":
            raise ZeroDivisionError("my secret prompt")
        return compile_template(written, ())

    monkeypatch.setattr("services.orchestrator.handlers.known_template", explode)
    poison = join(ready(step("bomb")))
    (letter, failed), (neighbour,) = await outcomes(dispatch(), poison, join(ready(step("fine")), offset=1))
    assert (told(letter)["x-error-class"], told(letter)["x-error-msg"]) == ("poison", "ZeroDivisionError")
    assert letter.value == poison.value
    found = failure(failed)
    assert (found.step, found.attempt, found.error.code, found.error.retryable) == ("a", 1, ErrorCode.INTERNAL, False)
    assert "secret" not in found.error.message
    assert neighbour.topic == "inference-tasks-llm"


async def test_a_step_that_cannot_be_read_is_failed_by_its_header() -> None:
    headers = (("task-id", ids.task_id(RUN, "a", 2).encode()), ("tenant", b"acme"))
    ((letter, failed),) = await outcomes(dispatch(), join(b"\x00", headers=headers))
    assert told(letter)["x-error-class"] == DeadLetterReason.UNDECODABLE
    assert (failure(failed).run_id, failure(failed).attempt, failure(failed).tenant) == (RUN, 2, "acme")


@pytest.mark.parametrize(
    "headers",
    [(), (("task-id", b"x"), ("tenant", b"acme")), (("task-id", ids.task_id(RUN, "a", 1).encode()), ("tenant", b""))],
)
async def test_a_step_that_nothing_names_is_a_dead_letter_only(headers: tuple[tuple[str, bytes], ...]) -> None:
    assert [len(one) for one in await outcomes(dispatch(), join(b"\x00", headers=headers))] == [1]


async def test_a_task_too_large_for_a_record_fails_its_step() -> None:
    (out,) = await outcomes(dispatch(), join(ready(step("x"), pipeline="p" * MAX_RECORD_BYTES)))
    assert failure(out[0]).error.code is ErrorCode.CONTENT_TOO_LARGE


async def test_a_step_whose_failure_is_too_large_for_a_record_is_a_dead_letter_too() -> None:
    headers = (("task-id", ids.task_id(RUN, "a", 1).encode()), ("tenant", b"acme"))
    trace = ready(step("x"), traceparent="t" * MAX_RECORD_BYTES)
    ((letter, failed),) = await outcomes(dispatch(), join(trace, headers=headers))
    assert told(letter)["x-error-class"] == DeadLetterReason.INVALID
    assert failure(failed).step == "a"


async def test_a_value_nested_too_deeply_to_be_carried_fails_its_step() -> None:
    nested: Any = 1
    for _ in range(60):
        nested = [nested]
    around: Any = "${input}"
    for _ in range(10):
        around = [around]
    (out,) = await outcomes(dispatch(), join(ready(step(around), input=Output(value=nested))))
    assert failure(out[0]).error.code is ErrorCode.INVALID_INPUT
    assert "64 levels" in failure(out[0]).error.message


async def test_ready_steps_whose_blobs_hang_wait_together() -> None:
    records = [join(ready(step("${input}"), input=Output(value=LARGE)), offset) for offset in range(40)]
    async with asyncio.timeout(5):
        found = await outcomes(dispatch(HungStore(40)), *records)
    assert all(failure(one).error.retryable for (one,) in found)


def breaker(state: CircuitState, probes: int = 0) -> BreakerState:
    return BreakerState(instance="w", model_class="llm", backend="default", state=state, probes=probes)


async def test_a_step_for_an_open_component_fails_at_once_and_for_good() -> None:
    handler = dispatch()
    await handler.handle([join(ready(step("x")))])  # from its record the clock knows the time
    handler.on_breakers([(1_000, breaker(CircuitState.OPEN))], [])
    ((out,),) = await outcomes(handler, join(ready(step("x"))))
    found = failure(out)
    assert (found.error.code, found.error.retryable) == (ErrorCode.ENGINE_UNAVAILABLE, False)
    assert "the circuit breaker of llm.default is open" in found.error.message


async def test_values_and_other_classes_go_on_while_a_component_is_open() -> None:
    handler = dispatch()
    await handler.handle([join(ready(step("x")))])
    handler.on_breakers([(1_000, breaker(CircuitState.OPEN))], [])
    ((out,),) = await outcomes(handler, join(ready(step(7, StepKind.VALUE))))
    assert isinstance(event(out), StepCompleted)


async def test_only_probes_pass_a_half_open_component() -> None:
    handler = dispatch()
    await handler.handle([join(ready(step("x")))])
    owner = WorkerStatus(
        instance="w", host="h", model_class="llm", backend="default", state="warm", slots=4, busy=0,
        committed=dict.fromkeys(range(10), 0),
    )  # fmt: skip
    handler.on_breakers([(1_000, breaker(CircuitState.HALF_OPEN, probes=2))], [owner])
    found = await outcomes(handler, *(join(ready(step("x")), offset) for offset in range(4)))
    assert [out.topic for (out,) in found] == ["inference-tasks-llm"] * 2 + [EVENTS] * 2


async def test_a_task_that_spills_over_is_counted_and_carries_the_price_of_where_it_went() -> None:
    backends = [
        Backend(name=name, engine=SimulatedEngine(kind="simulated"), price=Price(call_usd=usd))
        for name, usd in (("local", 0.0), ("burst", 0.5))
    ]
    config, metrics = FakeConfig(), Metrics()
    config.queues = {
        (queue.model_class, queue.backend): queue for queue in queues({"llm": ModelClass(backends=tuple(backends))})
    }
    handler = Dispatch(lambda: config, Outputs(InMemoryBlobStore()), LogClock(), metrics)
    worker = WorkerStatus(
        instance="w", host="h", model_class="llm", backend="burst", state="warm", slots=4, busy=0, service_ms=10
    )
    ((first,),) = await outcomes(handler, join(ready(step("x"))))
    handler.on_worker_statuses([(1_000, worker)])
    ((second,),) = await outcomes(handler, join(ready(step("x")), offset=1))
    assert [first.topic, second.topic] == ["inference-tasks-llm", "inference-tasks-llm.burst"]
    assert InferenceTask.model_validate_json(second.value or b"").price.call_usd == 0.5
    exposed = metrics.exposition().decode()
    assert 'headway_spilled_tasks_total{backend="burst",model_class="llm"} 1.0' in exposed


# ---- on a stream ----


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=lambda: 1_000)
    for topic in (REQUESTS, f"{REQUESTS}-dlq", EVENTS):
        kafka.create_topic(topic, 1)
    return kafka


async def test_no_request_is_passed_before_its_outcome_is_in_the_log(kafka: InMemoryKafka) -> None:
    where, poison = TopicPartition(REQUESTS, 0), json.dumps({**ASK, "pipeline": "bomb"}).encode()
    for value in (json.dumps(ASK).encode(), poison, b"hello", json.dumps(ASK).encode()):
        kafka.append(where, Outgoing(REQUESTS, value))
    producer = kafka.producer()
    settings = ConsumerSettings(group="admission", topics=(REQUESTS,))
    handler = admission(Explosive())
    stream = Stream(lambda listener: kafka.consumer(settings, listener), producer, handler, commit_interval_s=0.01)
    running = asyncio.create_task(stream.run())
    try:
        async with asyncio.timeout(10):
            while not (commit := kafka.group("admission").commits.get(where)) or commit.offset < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
    finally:
        await stream.stop()
        await running
    types = [event(Outgoing(EVENTS, record.value)).type for record in kafka.records(EVENTS)]
    assert types == ["run-started", "run-rejected", "run-started"]
    assert [record.value for record in kafka.records(f"{REQUESTS}-dlq")] == [poison, b"hello"]
