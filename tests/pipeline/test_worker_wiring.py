"""A whole worker on the in-memory Kafka, claims and blobs: what goes in as a task and comes out as an event."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from schemas import ids
from schemas.base import BlobRef, Priority
from schemas.errors import ErrorCode
from schemas.events import EVENT, StepCompleted, StepFailed
from schemas.models import Batch, ModelClass, Queue, queues
from schemas.models import SimulatedEngine as Config
from schemas.redis_keys import EndedRun
from schemas.tasks import InferenceTask, Price
from schemas.topics import EVENTS
from services.chassis.blobs import InMemoryBlobStore, Outputs
from services.chassis.clock import LogClock
from services.chassis.kafka import supervision
from services.chassis.kafka.in_memory import InMemoryConsumer, InMemoryKafka
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import (
    ConsumerSettings,
    KafkaError,
    Outgoing,
    ProducerDeadError,
    RebalanceListener,
    Record,
    TopicPartition,
)
from services.chassis.metrics import Metrics
from services.worker import engine_life, patience
from services.worker.adapters.memory_claims import InMemoryClaimStore, Shelf
from services.worker.adapters.memory_dead_runs import InMemoryDeadRuns
from services.worker.claims import Claims
from services.worker.domain.engine import Call, EngineEnded, EngineOverloaded, Outcome, Result
from services.worker.domain.ports import Claim
from services.worker.ended_runs import EndedRuns
from services.worker.engines.simulated import SimulatedEngine
from services.worker.handlers import Surroundings
from services.worker.member import ConsumerFactory, Member, Name
from services.worker.rest import Rest
from services.worker.text_stream import TextStream

EPOCH_MS = 1_700_000_000_000
INTERACTIVE, STANDARD, BATCH = Priority


def queue_of(name: str, *, slots: int = 4, batch: Batch | None = None, **engine: Any) -> Queue:
    backend = {"name": "local", "engine": {"kind": "simulated", **engine}, "price": {"call_usd": 0.5}}
    model_class = ModelClass.model_validate({"backends": [backend], "slots": slots, "batch": batch or Batch()})
    return next(queues({name: model_class}))


class RecordingEngine(SimulatedEngine):
    """A simulated engine that remembers what it was asked, and what was stopped."""

    def __init__(self, queue: Queue) -> None:
        assert isinstance(queue.engine, Config)
        super().__init__(queue.engine)
        self.batches: list[list[str]] = []
        self.cancelled: list[str] = []

    @property
    def asked(self) -> list[str]:
        return [task_id for batch in self.batches for task_id in batch]

    @property
    def ails(self) -> bool:
        """Whether it is in the midst of an outage."""
        return self._outage() is not None

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        self.batches.append([call.task_id for call in calls])
        try:
            return await super().infer(calls)
        except asyncio.CancelledError:
            self.cancelled += [call.task_id for call in calls]
            raise


class Worker:
    """A worker process: its members, claims and clock, on a plane that others share."""

    def __init__(
        self,
        plane: "Plane",
        name: str,
        *queues: Queue,
        consumers: ConsumerFactory | None = None,
        rest: Rest | None = None,
        text: TextStream | None = None,
    ) -> None:
        self.plane = plane
        self.claims = Claims(InMemoryClaimStore(plane.shelf, name))
        self.ended = EndedRuns()
        self.metrics = Metrics()
        self.producer = plane.kafka.producer()
        self.name = Name(name, "host-1")
        self.rest = rest or Rest()
        around = Surroundings(self.producer, LogClock(), Outputs(plane.blobs), self.claims, rest=self.rest, text=text)
        self.solitude = around.solitude
        self.engines = {queue.model_class: RecordingEngine(queue) for queue in queues}
        self.members = {
            queue.model_class: Member(
                queue, self.engines[queue.model_class], around, self.ended,
                consumers=consumers or plane.kafka.consumer, metrics=self.metrics,
            )
            for queue in queues
        }  # fmt: skip

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for member in self.members.values():
                group.create_task(member.run())
                group.create_task(member.watch())
                group.create_task(member.guard())
            group.create_task(self.claims.keep(self.ended.add))
            group.create_task(self.ended.follow(self.plane.dead_runs))

    async def until_ready(self) -> None:
        await until(lambda: not any(member.why_not_ready() for member in self.members.values()))

    async def drain(self, timeout_s: float = 1.0) -> None:
        await asyncio.gather(*(member.drain(timeout_s) for member in self.members.values()))
        await self.claims.release()


class Plane:
    """The topics, the claims and the blobs."""

    def __init__(self, *queues: Queue) -> None:
        self.kafka = InMemoryKafka(lambda: self.now_ms)
        self.blobs = InMemoryBlobStore()
        self.shelf = Shelf(time.monotonic)
        self.dead_runs = InMemoryDeadRuns()
        self.queues = {queue.model_class: queue for queue in queues}
        self.kafka.create_topic(EVENTS, 3)
        for queue in queues:
            self.kafka.create_topic(queue.topic, queue.lanes.count)
            self.kafka.create_topic(f"{queue.topic}-dlq", 1)

    @property
    def now_ms(self) -> int:
        return EPOCH_MS + int(time.monotonic() * 1_000)

    @asynccontextmanager
    async def worker(self, name: str = "worker-1", text: TextStream | None = None) -> AsyncIterator[Worker]:
        worker = Worker(self, name, *self.queues.values(), text=text)
        running = asyncio.create_task(worker.run())
        try:
            await worker.until_ready()
            yield worker
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def task(self, number: int, model_class: str = "llm", **fields: Any) -> InferenceTask:
        run_id = str(UUID(int=number))
        attempt = fields.pop("attempt", 1)
        deadline_at = self.now_ms + fields.pop("deadline_ms", 30_000)
        values: dict[str, Any] = {
            "input": {"n": number}, "lane": STANDARD, "price": Price(call_usd=0.5), "tenant": "acme",
            "pipeline": "ask", "step": "answer", "model_class": model_class, "backend": "local",
            "deadline_at": deadline_at, "step_deadline_at": deadline_at, **fields,
        }  # fmt: skip
        return InferenceTask(
            run_id=run_id, task_id=ids.task_id(run_id, values["step"], attempt), attempt=attempt, **values
        )

    def put(self, *tasks: InferenceTask, partition: int | None = None) -> None:
        for task in tasks:
            queue = self.queues[task.model_class]
            lane = queue.lanes.of(task.lane)
            where = lane[UUID(task.run_id).int % len(lane)] if partition is None else partition
            record = run_record(queue.topic, task, more={"task-id": task.task_id})
            self.kafka.append(TopicPartition(queue.topic, where), record)

    def events(self) -> list[StepCompleted | StepFailed]:
        found = [EVENT.validate_json(record.value or b"") for record in self.kafka.records(EVENTS)]
        return [event for event in found if isinstance(event, StepCompleted | StepFailed)]

    async def event(self, task: InferenceTask, timeout_s: float = 5.0) -> StepCompleted | StepFailed:
        def of_task() -> list[StepCompleted | StepFailed]:
            return [event for event in self.events() if (event.run_id, event.attempt) == (task.run_id, task.attempt)]

        await until(lambda: bool(of_task()), timeout_s)
        return of_task()[0]

    def lag(self, queue: Queue) -> int:
        commits = self.kafka.group(queue.group).commits
        ends = {
            TopicPartition(queue.topic, n): len(self.kafka.log(TopicPartition(queue.topic, n))) for n in range(10)
        }
        return sum(end - (commits[tp].offset if tp in commits else 0) for tp, end in ends.items())


async def until(true: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Waits for a condition that must become true."""
    async with asyncio.timeout(timeout_s):
        while not true():  # noqa: ASYNC110  many conditions, none with an event of its own
            await asyncio.sleep(0.002)


def claim_of(task: InferenceTask) -> Claim:
    return Claim(task.run_id, task.step, task.attempt, task.deadline_at)


def failure(event: StepCompleted | StepFailed) -> tuple[ErrorCode, bool]:
    assert isinstance(event, StepFailed)
    return event.error.code, event.error.retryable


LLM = queue_of("llm", latency_ms=1)
EMBEDDING = queue_of("embedding", slots=8, batch=Batch(max_size=32, max_wait=2), latency_ms=1, max_batch=32)


async def test_a_task_becomes_a_completed_step_and_is_committed() -> None:
    plane = Plane(LLM)
    async with plane.worker():
        task = plane.task(1, input={"question": "why?"}, fallback=1, traceparent="00-aa-bb-01")
        plane.put(task)
        event = await plane.event(task)
        assert isinstance(event, StepCompleted)
        assert event.output.value == {"question": "why?"}
        assert (event.step, event.attempt, event.fallback, event.tenant) == ("answer", 1, 1, "acme")
        assert event.task_at
        assert event.service_ms >= 1
        assert event.cost_usd == pytest.approx(0.5)
        await until(lambda: plane.lag(LLM) == 0)
    headers = dict(plane.kafka.records(EVENTS)[0].headers)
    assert headers["run-id"] == task.run_id.encode()
    assert headers["message-type"] == b"step-completed"
    assert headers["traceparent"] == b"00-aa-bb-01"


async def test_a_burst_of_embeddings_never_waits_for_a_busy_llm() -> None:
    llm = queue_of("llm", latency_ms=3_000)
    plane = Plane(llm, EMBEDDING)
    async with plane.worker() as worker:
        plane.put(*(plane.task(n) for n in range(8)))
        await until(lambda: worker.members["llm"].status(worker.name).busy >= 3)
        embeddings = [plane.task(n, "embedding", lane=INTERACTIVE) for n in range(100, 200)]
        began = time.monotonic()
        plane.put(*embeddings)
        await until(lambda: len(plane.events()) == 100)
        assert time.monotonic() - began < 1.0
        assert worker.members["llm"].status(worker.name).busy >= 3


async def test_an_expired_task_never_reaches_the_engine() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:
        late, good = plane.task(1, deadline_ms=-1), plane.task(2)
        plane.put(late, good)
        assert failure(await plane.event(late)) == (ErrorCode.DEADLINE_EXCEEDED, False)
        assert isinstance(await plane.event(good), StepCompleted)
        assert worker.engines["llm"].asked == [good.task_id]
        await until(lambda: plane.lag(LLM) == 0)


async def test_poison_goes_to_the_dead_letters_and_its_neighbours_go_on() -> None:
    plane = Plane(LLM)
    before, after, named = plane.task(1), plane.task(2), plane.task(3)
    tp = TopicPartition(LLM.topic, 4)
    async with plane.worker():
        plane.put(before, partition=4)
        plane.kafka.append(tp, Outgoing(LLM.topic, b"{not json", b"key"))
        headers = (("task-id", named.task_id.encode()), ("tenant", b"acme"))
        plane.kafka.append(tp, Outgoing(LLM.topic, b'{"attempt": 0}', b"key", headers))
        plane.put(after, partition=4)
        assert isinstance(await plane.event(before), StepCompleted)
        assert isinstance(await plane.event(after), StepCompleted)
        assert failure(await plane.event(named)) == (ErrorCode.INTERNAL, False)
        await until(lambda: plane.lag(LLM) == 0)
    letters = plane.kafka.records(f"{LLM.topic}-dlq")
    assert [(letter.key, letter.value) for letter in letters] == [(b"key", b"{not json"), (b"key", b'{"attempt": 0}')]


async def test_a_repeat_of_a_done_task_is_skipped() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:
        task = plane.task(1)
        plane.put(task)
        await until(lambda: plane.lag(LLM) == 0)
        plane.put(task)
        await until(lambda: plane.lag(LLM) == 0)
    assert worker.engines["llm"].asked == [task.task_id]
    assert len(plane.events()) == 1


async def test_a_task_delivered_again_while_it_runs_runs_once() -> None:
    llm = queue_of("llm", latency_ms=100)
    plane = Plane(llm)
    async with plane.worker() as worker:
        task = plane.task(1)
        plane.put(task, task, task, partition=5)
        await until(lambda: plane.lag(llm) == 0)
    assert worker.engines["llm"].asked == [task.task_id]
    assert len(plane.events()) == 1


async def test_a_task_held_by_another_worker_waits_outside_the_slots() -> None:
    llm = queue_of("llm", slots=1, latency_ms=1)
    plane = Plane(llm)
    held, free = plane.task(1), plane.task(2)
    plane.shelf.put(claim_of(held), "worker-0", 0.5)
    async with plane.worker():
        plane.put(held, free)
        began = time.monotonic()
        await plane.event(free)
        assert time.monotonic() - began < 0.4
        assert isinstance(await plane.event(held), StepCompleted)
        assert time.monotonic() - began >= 0.4


async def test_a_parked_task_that_came_back_keeps_its_slot_when_its_first_batch_ends() -> None:
    embedding = queue_of("embedding", slots=4, batch=Batch(max_size=4, max_wait=2), latency_ms=0, max_batch=4)
    plane = Plane(embedding)
    held = plane.task(1, "embedding", input={"simulate": {"latency_ms": 1_500}})
    mate = plane.task(5, "embedding", input={"simulate": {"latency_ms": 600}})
    plane.shelf.put(claim_of(held), "worker-0", 0.2)
    plane.put(held, mate, partition=4)
    async with plane.worker() as worker:
        await plane.event(mate)
        assert worker.engines["embedding"].batches == [[mate.task_id], [held.task_id]]
        assert worker.members["embedding"].status(worker.name).busy == 1
        assert isinstance(await plane.event(held), StepCompleted)
        await until(lambda: worker.members["embedding"].status(worker.name).busy == 0)


async def test_what_another_worker_finished_meanwhile_is_not_run() -> None:
    plane = Plane(LLM)
    task = plane.task(1)
    claim = claim_of(task)
    plane.shelf.put(claim, "worker-0", 0.3)
    async with plane.worker() as worker:
        plane.put(task)
        await asyncio.sleep(0.05)
        plane.shelf.put(claim, "done", 60)
        await until(lambda: plane.lag(LLM) == 0)
        assert worker.engines["llm"].asked == []
    assert plane.events() == []


async def test_without_redis_work_goes_on() -> None:
    plane = Plane(LLM)
    plane.shelf.away = True
    async with plane.worker() as worker:
        tasks = [plane.task(n) for n in range(20)]
        plane.put(*tasks)
        await until(lambda: len(plane.events()) == 20)
        assert worker.claims.away
        plane.shelf.away = False
        await until(lambda: not worker.claims.away)


async def test_a_run_that_ends_stops_its_running_task() -> None:
    llm = queue_of("llm", latency_ms=60_000)
    plane = Plane(llm)
    async with plane.worker() as worker:
        task = plane.task(1)
        plane.put(task)
        await until(lambda: worker.engines["llm"].asked == [task.task_id])
        plane.dead_runs.announce(EndedRun(task.run_id, task.deadline_at))
        await until(lambda: worker.engines["llm"].cancelled == [task.task_id], timeout_s=1.0)
        await until(lambda: plane.lag(llm) == 0)
    assert plane.events() == []


async def test_an_end_nobody_announced_is_noticed_by_the_claims() -> None:
    llm = queue_of("llm", latency_ms=60_000)
    plane = Plane(llm)
    async with plane.worker() as worker:
        task = plane.task(1)
        plane.put(task)
        await until(lambda: worker.engines["llm"].asked == [task.task_id])
        plane.shelf.dead[task.run_id] = task.deadline_at
        await until(lambda: worker.engines["llm"].cancelled == [task.task_id], timeout_s=1.0)


async def test_a_queued_task_of_an_ended_run_is_dropped() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:
        known, told = plane.task(1), plane.task(2)
        plane.put(known, told)  # in the log, but not in the same instant in the worker's hands
        worker.ended.add(EndedRun(known.run_id, known.deadline_at))
        plane.shelf.dead[told.run_id] = told.deadline_at
        await until(lambda: plane.lag(LLM) == 0)
        assert worker.engines["llm"].asked == []
    assert plane.events() == []


async def test_a_task_dispatched_after_its_run_has_ended_is_dropped() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:
        known, told = plane.task(1), plane.task(2)
        worker.ended.add(EndedRun(known.run_id, known.deadline_at))
        plane.shelf.dead[told.run_id] = told.deadline_at
        await asyncio.sleep(0.005)  # any stamp is later now
        plane.put(known, told)
        await until(lambda: plane.lag(LLM) == 0)
        assert worker.engines["llm"].asked == []
    assert plane.events() == []


async def test_a_run_id_that_lives_again_is_served_again() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:
        first = plane.task(1)
        plane.put(first)
        await until(lambda: plane.lag(LLM) == 0)
        worker.ended.add(EndedRun(first.run_id, first.deadline_at))
        plane.shelf.dead[first.run_id] = first.deadline_at
        again = plane.task(1, input={"life": 2}, deadline_ms=40_000)
        plane.put(again)
        await until(lambda: plane.lag(LLM) == 0)
        assert worker.engines["llm"].asked == [first.task_id, again.task_id]
    assert [event.output.value for event in plane.events() if isinstance(event, StepCompleted)][1] == {"life": 2}


async def test_a_new_life_does_not_wait_for_the_old_ones_task() -> None:
    llm = queue_of("llm", latency_ms=0)
    plane = Plane(llm)
    async with plane.worker() as worker:
        old = plane.task(1, input={"simulate": {"hang": True}})
        plane.put(old)
        await until(lambda: worker.engines["llm"].asked == [old.task_id])
        plane.put(plane.task(1, deadline_ms=40_000))
        event = await plane.event(old)
    assert isinstance(event, StepCompleted)


async def test_fast_tasks_share_engine_calls() -> None:
    plane = Plane(EMBEDDING)
    tasks = [plane.task(n, "embedding") for n in range(64)]
    plane.put(*tasks)
    async with plane.worker() as worker:
        await until(lambda: len(plane.events()) == 64)
        sizes = [len(batch) for batch in worker.engines["embedding"].batches]
    assert sum(sizes) == 64
    assert max(sizes) > 1
    assert len(sizes) < 40


async def test_a_bad_task_in_a_batch_fails_alone() -> None:
    plane = Plane(EMBEDDING)
    good = [plane.task(n, "embedding", lane=INTERACTIVE) for n in range(5)]
    wrong = plane.task(10, "embedding", lane=INTERACTIVE, input={"simulate": {"nonsense": 1}})
    shapeless = plane.task(11, "embedding", lane=INTERACTIVE, input=[1, 2])
    plane.put(*good, wrong, shapeless)
    async with plane.worker():
        assert failure(await plane.event(wrong)) == (ErrorCode.INVALID_INPUT, False)
        assert failure(await plane.event(shapeless)) == (ErrorCode.INVALID_INPUT, False)
        for task in good:
            assert isinstance(await plane.event(task), StepCompleted)


async def test_a_task_that_hangs_is_stopped_at_its_deadline() -> None:
    plane = Plane(LLM)
    async with plane.worker():
        task = plane.task(1, deadline_ms=200, input={"simulate": {"hang": True}})
        plane.put(task)
        event = await plane.event(task)
        assert failure(event) == (ErrorCode.DEADLINE_EXCEEDED, False)
        assert 100 <= event.service_ms <= 1_000


class StubbornEngine(RecordingEngine):
    """Goes on when it is told to stop, until the test is over."""

    over: asyncio.Event

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        if not all(call.input.get("stubborn") for call in calls):
            return await super().infer(calls)
        self.batches.append([call.task_id for call in calls])
        while not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                self.cancelled += [call.task_id for call in calls]
        return []


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every worker's engine is."""
    monkeypatch.setattr(patience, "OBEY_S", 0.05)
    monkeypatch.setattr("tests.pipeline.test_worker_wiring.RecordingEngine", StubbornEngine)
    StubbornEngine.over = asyncio.Event()
    yield
    StubbornEngine.over.set()


@pytest.mark.usefixtures("stubborn")
async def test_a_call_that_does_not_stop_keeps_neither_its_task_nor_its_slot() -> None:
    llm = queue_of("llm", slots=2, latency_ms=1)
    plane = Plane(llm)
    async with plane.worker() as worker:
        stuck, good = plane.task(1, deadline_ms=200, input={"stubborn": True}), plane.task(2)
        plane.put(stuck)
        assert failure(await plane.event(stuck)) == (ErrorCode.DEADLINE_EXCEEDED, False)
        assert worker.engines["llm"].cancelled == [stuck.task_id]
        await until(lambda: worker.members["llm"].status(worker.name).busy == 0)
        plane.put(good)
        assert isinstance(await plane.event(good), StepCompleted)


@pytest.mark.usefixtures("stubborn")
async def test_an_engine_of_which_no_call_stops_is_given_up() -> None:
    llm = queue_of("llm", slots=2, latency_ms=1)
    plane = Plane(llm)
    worker = Worker(plane, "worker-1", llm)
    running = asyncio.create_task(worker.run())
    await worker.until_ready()
    plane.put(*(plane.task(n, deadline_ms=200, input={"stubborn": True}) for n in range(2)))
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(running, 5)
    assert ended.group_contains(engine_life.EngineLostError, match="2 calls do not stop")


async def test_an_engine_that_has_ended_ends_its_worker_and_fails_no_call_for_good() -> None:
    llm = queue_of("llm", slots=60)
    plane = Plane(llm)
    worker = Worker(plane, "worker-1", llm)
    running = asyncio.create_task(worker.run())
    await worker.until_ready()
    asked: list[Call] = []
    dead = asyncio.Event()

    async def infer(calls: Sequence[Call]) -> list[Outcome]:
        asked.extend(calls)
        await dead.wait()
        return [EngineEnded("its core is gone") for _ in calls]

    worker.engines["llm"].infer = infer  # type: ignore[method-assign]
    plane.put(*(plane.task(n) for n in range(40)))
    await until(lambda: len(asked) == 40)
    dead.set()
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(running, 5)
    assert ended.group_contains(engine_life.EngineLostError, match="its core is gone")
    assert len(plane.events()) > 20, "more than a retry budget has room for"
    assert {failure(event) for event in plane.events()} == {(ErrorCode.ENGINE_UNAVAILABLE, True)}


async def test_an_engine_that_raises_fails_the_call_not_the_worker() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:
        engine, real = worker.engines["llm"], worker.engines["llm"].infer

        async def broken(calls: Sequence[Call]) -> list[Outcome]:
            raise ZeroDivisionError

        engine.infer = broken  # type: ignore[method-assign]
        task, next_one = plane.task(1), plane.task(2)
        plane.put(task)
        assert failure(await plane.event(task)) == (ErrorCode.ENGINE_FAILED, True)
        engine.infer = real  # type: ignore[method-assign]
        plane.put(next_one)
        assert isinstance(await plane.event(next_one), StepCompleted)


async def test_an_engine_that_answers_too_little_fails_the_whole_call() -> None:
    plane = Plane(EMBEDDING)
    async with plane.worker() as worker:

        async def short(calls: Sequence[Call]) -> list[Outcome]:
            return [Result({})] * (len(calls) - 1)

        worker.engines["embedding"].infer = short  # type: ignore[method-assign]
        task = plane.task(1, "embedding")
        plane.put(task)
        assert failure(await plane.event(task)) == (ErrorCode.ENGINE_FAILED, True)


async def test_a_bug_of_the_worker_fails_its_task_and_nothing_else() -> None:
    plane = Plane(LLM)
    healthy = plane.blobs.put

    async def broken(content: bytes) -> BlobRef:
        raise ZeroDivisionError

    async with plane.worker():
        plane.blobs.put = broken  # type: ignore[method-assign]
        task, good = plane.task(1, input={"text": "x" * 20_000}), plane.task(2)
        plane.put(task, good)
        assert failure(await plane.event(task)) == (ErrorCode.INTERNAL, False)
        assert isinstance(await plane.event(good), StepCompleted)
        plane.blobs.put = healthy  # type: ignore[method-assign]


async def test_a_batch_goes_on_while_one_of_its_runs_lives() -> None:
    embedding = queue_of("embedding", slots=8, batch=Batch(max_size=32, max_wait=2), latency_ms=300, max_batch=32)
    plane = Plane(embedding)
    gone, stays = (plane.task(n, "embedding", lane=INTERACTIVE) for n in (4, 8))
    plane.put(gone, stays, partition=0)
    async with plane.worker() as worker:
        await until(lambda: worker.engines["embedding"].batches == [[gone.task_id, stays.task_id]])
        plane.dead_runs.announce(EndedRun(gone.run_id, gone.deadline_at))
        assert isinstance(await plane.event(stays), StepCompleted)
        await until(lambda: plane.lag(embedding) == 0)
        assert worker.engines["embedding"].cancelled == []
    assert [event.run_id for event in plane.events()] == [stays.run_id]


async def test_an_output_that_is_no_json_fails_for_good() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:

        async def odd(calls: Sequence[Call]) -> list[Outcome]:
            return [Result("\ud800") for _ in calls]

        worker.engines["llm"].infer = odd  # type: ignore[method-assign]
        task = plane.task(1)
        plane.put(task)
        assert failure(await plane.event(task)) == (ErrorCode.ENGINE_FAILED, False)


async def test_large_values_travel_by_claim_check() -> None:
    plane = Plane(LLM)
    value = {"text": "x" * 20_000}
    ref = await plane.blobs.put(b'{"text": "' + b"x" * 20_000 + b'"}')
    async with plane.worker():
        task = plane.task(1, input=None, input_ref=ref)
        plane.put(task)
        event = await plane.event(task)
        assert isinstance(event, StepCompleted)
        assert event.output.value is None
        assert event.output.ref is not None
        assert await Outputs(plane.blobs).load_output(event.output) == value


async def test_a_missing_input_fails_its_step() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:
        task = plane.task(1, input_ref=BlobRef(sha256="0" * 64, size_bytes=1))
        plane.put(task)
        assert failure(await plane.event(task)) == (ErrorCode.INTERNAL, False)
        assert worker.engines["llm"].asked == []


async def test_an_unreachable_blob_store_may_be_tried_again() -> None:
    plane = Plane(LLM)
    plane.blobs.unavailable = True
    async with plane.worker():
        task = plane.task(1, input_ref=BlobRef(sha256="0" * 64, size_bytes=1))
        large = plane.task(2, input={"text": "x" * 20_000})
        plane.put(task, large)
        assert failure(await plane.event(task)) == (ErrorCode.INTERNAL, True)
        assert failure(await plane.event(large)) == (ErrorCode.INTERNAL, True)


async def test_retries_end_with_the_budget() -> None:
    plane = Plane(LLM)
    async with plane.worker():
        tasks = [plane.task(n, input={"simulate": {"fail": "engine_failed"}}) for n in range(40)]
        plane.put(*tasks)
        await until(lambda: len(plane.events()) == 40)
    assert sum(failure(event)[1] for event in plane.events()) in range(10, 15)


async def test_interactive_tasks_pass_a_backlog_of_batch_tasks() -> None:
    llm = queue_of("llm", latency_ms=20)
    plane = Plane(llm)
    plane.put(*(plane.task(n, lane=BATCH) for n in range(400)))
    async with plane.worker():
        waits = []
        for n in range(1_000, 1_010):
            task = plane.task(n, lane=INTERACTIVE)
            began = time.monotonic()
            plane.put(task)
            await plane.event(task)
            waits.append(time.monotonic() - began)
        assert sorted(waits)[5] < 0.3
        assert plane.lag(llm) > 100


async def test_batch_tasks_are_not_starved_by_interactive_ones() -> None:
    llm = queue_of("llm", latency_ms=5)
    plane = Plane(llm)
    plane.put(*(plane.task(n, lane=INTERACTIVE) for n in range(2_000)))
    plane.put(*(plane.task(n, lane=BATCH) for n in range(2_000, 2_200)))
    async with plane.worker():
        await until(lambda: len(plane.events()) >= 400, timeout_s=10)
        batch = sum(int(UUID(event.run_id)) >= 2_000 for event in plane.events())
        assert batch >= 0.05 * len(plane.events()) - 2


async def test_an_ailing_engine_gets_no_work_until_it_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_life, "GIVE_UP_S", 0.1)
    monkeypatch.setattr(engine_life, "HEAL_EVERY_S", 0.2)
    llm = queue_of("llm", slots=2, latency_ms=1, outages=[{"after_s": 0.3, "for_s": 60, "kind": "fail"}])
    plane = Plane(llm)
    worker = Worker(plane, "worker-1", llm)
    running = asyncio.create_task(worker.run())
    await worker.until_ready()
    await asyncio.sleep(0.4)  # into the outage
    plane.put(*(plane.task(n) for n in range(50)))
    with pytest.raises(ExceptionGroup) as ended:
        await running
    assert ended.group_contains(Exception, match="the engine of llm is lost")
    assert len(plane.events()) <= 4


async def test_an_engine_that_hangs_under_load_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("HEALTH_EVERY_S", 0.2), ("HEALTH_TIMEOUT_S", 0.1), ("HEAL_TIMEOUT_S", 0.2)):
        monkeypatch.setattr(engine_life, name, seconds)
    llm = queue_of("llm", slots=2, latency_ms=1, outages=[{"after_s": 0.3, "for_s": 60, "kind": "hang"}])
    plane = Plane(llm)
    worker = Worker(plane, "worker-1", llm)
    running = asyncio.create_task(worker.run())
    await worker.until_ready()

    async def load() -> None:
        """Each task dies at its deadline, and the next takes its slot."""
        for n in range(10_000):
            plane.put(plane.task(n, deadline_ms=50))
            await asyncio.sleep(0.01)

    loading = asyncio.create_task(load())
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(running, 5)
    loading.cancel()
    assert ended.group_contains(engine_life.EngineLostError, match="the engine of llm is lost")
    assert any(isinstance(event, StepCompleted) for event in plane.events())


async def test_an_engine_that_is_busy_for_long_is_checked_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_life, "HEALTH_EVERY_S", 0.05)
    llm = queue_of("llm", slots=1, latency_ms=500)
    plane = Plane(llm)
    async with plane.worker() as worker:
        checks, check = [], worker.engines["llm"].health

        async def counted(timeout_s: float = 5.0) -> None:
            await check(timeout_s)
            checks.append(worker.members["llm"].status(worker.name).busy)

        worker.engines["llm"].health = counted  # type: ignore[method-assign]
        task = plane.task(1)
        plane.put(task)
        assert isinstance(await plane.event(task), StepCompleted)
        assert 1 in checks


async def test_a_scale_out_runs_nothing_twice() -> None:
    llm = queue_of("llm", slots=8, latency_ms=150)
    plane = Plane(llm)
    async with plane.worker("worker-1") as first:
        plane.put(*(plane.task(n, lane=list(Priority)[n % 3]) for n in range(60)))
        await until(lambda: len(first.engines["llm"].asked) >= 8)
        async with plane.worker("worker-2") as second:
            await until(lambda: len(plane.events()) >= 60, timeout_s=15)
            asked = first.engines["llm"].asked + second.engines["llm"].asked
            await until(lambda: plane.lag(llm) == 0)
    assert len(asked) == len(set(asked)) == 60
    assert second.engines["llm"].asked
    assert len(plane.events()) == 60


async def test_a_task_longer_than_the_drain_survives_a_rebalance() -> None:
    llm = queue_of("llm", latency_ms=4_000)
    plane = Plane(llm)
    async with plane.worker("worker-1") as first:
        task = plane.task(1)
        plane.put(task)
        await until(lambda: first.engines["llm"].asked == [task.task_id])
        began = time.monotonic()
        async with plane.worker("worker-2") as second:
            assert time.monotonic() - began < 1.0
            assert isinstance(await plane.event(task), StepCompleted)
            await until(lambda: plane.lag(llm) == 0, timeout_s=12)
    assert first.engines["llm"].asked + second.engines["llm"].asked == [task.task_id]
    assert len(plane.events()) == 1


async def test_a_drained_worker_leaves_nothing_behind() -> None:
    llm = queue_of("llm", latency_ms=50)
    plane = Plane(llm)
    plane.put(*(plane.task(n) for n in range(100)))
    async with plane.worker() as worker:
        await until(lambda: len(plane.events()) >= 5)
        await worker.drain()
        asked = len(worker.engines["llm"].asked)
        assert len(plane.events()) == asked
        assert plane.lag(llm) == 100 - asked


async def test_a_worker_told_to_stop_leaves_its_partitions_to_others_and_ends_its_tasks() -> None:
    llm = queue_of("llm", latency_ms=1_500)
    plane = Plane(llm)
    async with plane.worker("worker-1") as first, plane.worker("worker-2") as second:
        tasks = [plane.task(n, lane=list(Priority)[n % 3]) for n in range(6)]
        plane.put(*tasks)
        await until(lambda: bool(first.engines["llm"].asked))
        stopping = asyncio.create_task(first.drain(5.0))
        later = [plane.task(n, lane=INTERACTIVE, input={"simulate": {"latency_ms": 1}}) for n in range(100, 108)]
        plane.put(*later)
        await asyncio.gather(*(plane.event(task, 1.2) for task in later))
        assert not stopping.done()
        await stopping
        for task in tasks:
            assert isinstance(await plane.event(task), StepCompleted)
        await until(lambda: plane.lag(llm) == 0)
        assert first.engines["llm"].cancelled == []
        asked = first.engines["llm"].asked + second.engines["llm"].asked
    assert len(asked) == len(set(asked)) == 14


async def test_a_drain_that_takes_too_long_stops_the_tasks_and_frees_their_claims() -> None:
    llm = queue_of("llm", latency_ms=60_000)
    plane = Plane(llm)
    async with plane.worker() as worker:
        task = plane.task(1)
        plane.put(task)
        await until(lambda: worker.engines["llm"].asked == [task.task_id])
        await worker.drain(0.1)
        assert worker.engines["llm"].cancelled == [task.task_id]
        assert plane.shelf.get(claim_of(task)) is None
    assert plane.lag(llm) == 1


async def test_a_result_that_cannot_be_appended_ends_the_process() -> None:
    plane = Plane(LLM)
    worker = Worker(plane, "worker-1", LLM)
    running = asyncio.create_task(worker.run())
    await worker.until_ready()
    worker.producer.die()
    plane.put(plane.task(1))
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(running, 5)
    assert ended.group_contains(ProducerDeadError)
    assert plane.lag(LLM) == 1


class FailingConsumer(InMemoryConsumer):
    """Fails, or hangs, in its third poll."""

    def __init__(self, *args: Any, hang: bool = False) -> None:
        super().__init__(*args)
        self.hang, self.polls = hang, 0

    async def poll(self, *args: Any, **options: Any) -> Sequence[Record]:
        self.polls += 1
        if self.polls == 3:
            if self.hang:
                await asyncio.sleep(3_600)
            raise KafkaError("lost")
        return await super().poll(*args, **options)


@pytest.mark.parametrize("hang", [False, True])
async def test_a_consumer_that_fails_or_hangs_is_replaced(hang: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART_S", 0.01)
    monkeypatch.setattr(supervision, "WATCH_S", 0.05)
    monkeypatch.setattr(supervision, "POLL_STALL_S", 0.5)
    plane = Plane(LLM)
    made: list[InMemoryConsumer] = []

    def consumers(settings: ConsumerSettings, listener: RebalanceListener) -> InMemoryConsumer:
        kind = FailingConsumer(plane.kafka, settings, listener, hang=hang) if not made else None
        made.append(kind or InMemoryConsumer(plane.kafka, settings, listener))
        return made[-1]

    worker = Worker(plane, "worker-1", LLM, consumers=consumers)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(made) == 2)
    tasks = [plane.task(n) for n in range(20)]
    plane.put(*tasks)
    await until(lambda: plane.lag(LLM) == 0)
    assert len(plane.events()) == 20
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_consumer_that_always_fails_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART_S", 0.001)
    plane = Plane(LLM)
    worker = Worker(plane, "w", LLM, consumers=lambda *given: FailingConsumer(plane.kafka, *given))
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(worker.run(), 10)
    assert ended.group_contains(KafkaError, match="lost")


class DeafConsumer(InMemoryConsumer):
    """Alive, a member, and never given a record."""

    async def poll(self, *args: Any, **options: Any) -> Sequence[Record]:
        await asyncio.sleep(options["timeout_s"] / 10)
        return ()


async def test_a_consumer_that_hears_nothing_of_waiting_tasks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART_S", 0.01)
    monkeypatch.setattr(supervision, "WATCH_S", 0.05)
    monkeypatch.setattr(supervision, "DELIVERY_STALL_S", 0.2)
    plane = Plane(LLM)
    kinds = iter([DeafConsumer, InMemoryConsumer])
    plane.put(plane.task(1))
    worker = Worker(plane, "w", LLM, consumers=lambda *given: next(kinds)(plane.kafka, *given))
    running = asyncio.create_task(worker.run())
    await until(lambda: plane.lag(LLM) == 0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_its_status_says_how_it_is() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:
        plane.put(plane.task(1))
        await until(lambda: plane.lag(LLM) == 0)
        status = worker.members["llm"].status(worker.name)
        assert (status.model_class, status.backend, status.state) == ("llm", "local", "warm")
        assert (status.slots, status.busy) == (4, 0)
        assert sum(status.committed.values()) == 1
        assert set(status.committed) == set(range(10))
        assert status.service_ms
        assert status.service_ms >= 1
        await worker.drain()
        assert worker.members["llm"].status(worker.name).state == "draining"


async def test_an_engine_that_has_too_many_calls_is_given_fewer_and_the_fleet_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane, crowd = Plane(LLM), asyncio.Barrier(3)
    async with plane.worker() as worker:
        engine, member = worker.engines["llm"], worker.members["llm"]

        async def infer(calls: Sequence[Call]) -> list[Outcome]:
            await crowd.wait()
            return [EngineOverloaded("too many") for _ in calls]

        monkeypatch.setattr(engine, "infer", infer)
        tasks = [plane.task(number) for number in range(3)]
        plane.put(*tasks)
        failures = [failure(await plane.event(task)) for task in tasks]
        assert {code for code, _ in failures} == {ErrorCode.ENGINE_UNAVAILABLE}
        assert member.status(worker.name).slots == 1, "half of the three that it had"


async def test_its_metrics_count_by_lane_and_outcome() -> None:
    plane = Plane(LLM)
    async with plane.worker() as worker:
        plane.put(plane.task(1), plane.task(2, lane=BATCH, deadline_ms=-1))
        await until(lambda: plane.lag(LLM) == 0)
        text = worker.metrics.exposition().decode()
    assert 'headway_tasks_total{backend="local",lane="standard",model_class="llm",outcome="succeeded"} 1.0' in text
    assert 'headway_tasks_total{backend="local",lane="batch",model_class="llm",outcome="expired"} 1.0' in text
    assert 'headway_tasks_total{backend="local",lane="interactive",model_class="llm",outcome="failed"} 0.0' in text
    assert 'headway_slots{backend="local",model_class="llm"} 4.0' in text
    assert 'headway_cost_usd_total{kind="busy",model_class="llm",pipeline="ask"} 0.5' in text
