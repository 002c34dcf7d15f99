"""Back-pressure from the join to admission, over the fleet topic: nothing is lost, and dispatch never waits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from time import monotonic, time_ns
from typing import Any
from uuid import uuid4

from schemas import ids
from schemas.base import Priority
from schemas.errors import ErrorCode
from schemas.events import EVENT, Event, RequestCoordinates, RunCancelled, RunRejected, RunStarted
from schemas.fleet import OpenRuns
from schemas.graphs import Step, StepKind, Target
from schemas.joins import StepReady
from schemas.requests import InferenceRequest
from schemas.responses import InferenceResponse
from schemas.topics import EVENTS, FLEET, JOINS, PARTITIONS, REQUESTS, RESPONSES, USAGE
from services.aggregator.actions import Actions
from services.aggregator.handlers import Join
from services.aggregator.snapshots import Snapshots
from services.chassis.blobs import InMemoryBlobStore, Outputs
from services.chassis.clock import LogClock
from services.chassis.fleet import FleetPublisher, FleetView
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.stream import BatchHandler, Stream
from services.chassis.kafka.types import ConsumerSettings, Outgoing, Record
from services.chassis.metrics import Metrics
from services.orchestrator.domain.door import Announcement, Door
from services.orchestrator.gate import Gate
from services.orchestrator.handlers import Admission, Dispatch
from tests.unit.orchestrator.test_admission import FakeCatalog
from tests.unit.orchestrator.test_handlers import FakeConfig

MAX_OPEN_RUNS = 10
WINDOW_MS = 3_600_000
TASKS = "inference-tasks-llm"


class Plane:
    """Admission, dispatch and the join on one in-memory Kafka. There is no worker: a run that starts stays open."""

    def __init__(self) -> None:
        self.kafka = InMemoryKafka(lambda: time_ns() // 1_000_000)
        counts = {REQUESTS: 2, EVENTS: PARTITIONS, JOINS: 2, RESPONSES: 1, USAGE: 1, FLEET: 1, TASKS: 10}
        for topic, partitions in counts.items():
            self.kafka.create_topic(topic, partitions)
        self.producer = self.kafka.producer()
        self.outputs = Outputs(InMemoryBlobStore())
        self.tasks: list[asyncio.Task[None]] = []

    async def start_orchestrator(self) -> None:
        clock, metrics = LogClock(), Metrics()
        view = FleetView(clock)
        reader = LogReader(lambda listener: self.kafka.consumer(ConsumerSettings(None, (FLEET,)), listener))
        await reader.start()
        self.spawn(view.run(reader))

        def announced() -> list[Announcement]:
            return [Announcement(at, said.by_partition) for at, said in view.stamped(OpenRuns)]

        gate = Gate(announced, Door(MAX_OPEN_RUNS, PARTITIONS), clock, metrics)
        self.stream("admission", REQUESTS, Admission(FakeCatalog, self.outputs, clock, metrics, gate))
        self.stream("dispatch", JOINS, Dispatch(FakeConfig, self.outputs, clock, metrics))

    def start_aggregator(self) -> None:
        clock = LogClock()
        actions = Actions(
            clock=clock, producer=self.producer, outputs=self.outputs, requests=self, stopper=self, metrics=Metrics()
        )
        snapshots = Snapshots(InMemoryBlobStore(), WINDOW_MS, monotonic)
        join = Join(actions, window_ms=WINDOW_MS, clock=clock, producer=self.producer, snapshots=snapshots)
        self.stream("join", EVENTS, join, join)
        self.spawn(join.tick())

        def announcement() -> list[OpenRuns]:
            return [OpenRuns(instance="aggregator", by_partition=join.open_runs())]

        self.spawn(FleetPublisher(self.producer, clock, announcement, interval_s=0.02).run())

    def stream(self, group: str, topic: str, handler: BatchHandler, join: Join | None = None) -> None:
        settings = ConsumerSettings(group=group, topics=(topic,))
        stream = Stream(
            lambda listener: self.kafka.consumer(settings, listener), self.producer, handler,
            commit_interval_s=0.01, state=join,
        )  # fmt: skip
        self.spawn(stream.run())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def fetch(self, coordinates: Collection[RequestCoordinates]) -> dict[RequestCoordinates, Record | None]:
        raise AssertionError("nothing is dead-lettered here")

    def stop_run(self, run_id: str, ended_at_ms: int) -> None:
        """There is no worker to tell."""

    async def request(self, *request_ids: str, priority: Priority = Priority.INTERACTIVE) -> None:
        for request_id in request_ids:
            asked = InferenceRequest(
                request_id=request_id, pipeline="ask", input={"question": "why"}, priority=priority
            )
            await self.producer.send_all([Outgoing(REQUESTS, asked.model_dump_json(exclude_none=True).encode())])

    def events(self) -> list[Event]:
        return [EVENT.validate_json(record.value or b"") for record in self.kafka.records(EVENTS)]

    def responses(self) -> dict[str, InferenceResponse]:
        found = [
            InferenceResponse.model_validate_json(record.value or b"") for record in self.kafka.records(RESPONSES)
        ]
        assert len({response.request_id for response in found}) == len(found)
        return {response.request_id: response for response in found}

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not true():
                for task in self.tasks:
                    assert not task.done(), task
                await asyncio.sleep(0.02)


@asynccontextmanager
async def plane() -> AsyncIterator[Plane]:
    found = Plane()
    await found.producer.start()
    await found.start_orchestrator()
    try:
        yield found
    finally:
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)
        await found.producer.stop()


async def test_what_is_too_much_is_refused_with_an_answer_and_what_was_let_in_goes_on() -> None:
    async with plane() as found:
        found.start_aggregator()
        names = [f"r{number}" for number in range(25)]
        await found.request(*names)
        await found.until(lambda: len(found.responses()) + len(started(found)) == len(names))
        assert 0 < len(started(found)) <= MAX_OPEN_RUNS
        assert {*started(found), *found.responses()} == set(names)
        for response in found.responses().values():
            assert response.error is not None
            assert (response.error.code, response.error.retryable) == (ErrorCode.OVERLOADED, True)
            assert response.error.retry_after_ms is not None
        await found.until(lambda: len(found.kafka.records(TASKS)) == len(started(found)))


async def test_the_plane_opens_its_door_again_when_runs_end_and_batch_is_let_in_last() -> None:
    async with plane() as found:
        found.start_aggregator()
        # Between two announcements a run may count twice, and the next one be refused for it.
        running = [await ask_until_let_in(found, Priority.INTERACTIVE) for _ in range(MAX_OPEN_RUNS)]
        await found.request("refused", priority=Priority.BATCH)
        await found.until(lambda: "refused" in found.responses())
        await cancel(found, *running[:3])
        await found.until(lambda: found.responses().keys() >= set(running[:3]))
        running.append(await ask_until_let_in(found, Priority.INTERACTIVE))
        await found.request("still refused", priority=Priority.BATCH)
        await found.until(lambda: "still refused" in found.responses())
        await cancel(found, *running[3:6])
        await ask_until_let_in(found, Priority.BATCH)


def started(found: Plane) -> list[str]:
    return [request_id for request_id, event in told(found).items() if isinstance(event, RunStarted)]


async def ask_until_let_in(found: Plane, priority: Priority) -> str:
    """The request that was."""
    for _ in range(1_000):
        name = f"{priority}-{uuid4()}"
        await found.request(name, priority=priority)
        await found.until(lambda name=name: name in told(found))  # type: ignore[misc]
        if isinstance(told(found)[name], RunStarted):
            return name
    raise AssertionError(f"no {priority} request was let in")


async def test_requests_wait_for_the_aggregator_and_dispatch_does_not() -> None:
    async with plane() as found:
        await found.request("early")
        ready = a_ready_step("another")
        await found.producer.send_all([run_record(JOINS, ready)])
        await found.until(lambda: len(found.kafka.records(TASKS)) == 1)
        assert found.events() == []
        assert all(commit.offset == 0 for commit in found.kafka.group("admission").commits.values())
        found.start_aggregator()
        await found.until(lambda: len(found.kafka.records(TASKS)) == 2)
        assert [type(event) for event in found.events()] == [RunStarted]


def told(found: Plane) -> dict[str, RunStarted | RunRejected]:
    return {event.request_id: event for event in found.events() if isinstance(event, RunStarted | RunRejected)}


async def cancel(found: Plane, *request_ids: str) -> None:
    for request_id in request_ids:
        run_id = ids.run_id("default", request_id)
        event = RunCancelled(run_id=run_id, tenant="default", cancelled_by="ops")
        await found.producer.send_all([run_record(EVENTS, event)])


def a_ready_step(request_id: str) -> StepReady:
    run_id, target = ids.run_id("default", request_id), Target(model_class="llm")
    return StepReady(
        run_id=run_id,
        tenant="default",
        task_id=ids.task_id(run_id, "a", 1),
        pipeline="ask",
        step=Step(id="a", kind=StepKind.MODEL, chain=(target,), input={}),
        target=target,
        fallback=0,
        attempt=1,
        priority=Priority.INTERACTIVE,
        deadline_at=time_ns() // 1_000_000 + 60_000,
        step_deadline_at=time_ns() // 1_000_000 + 60_000,
        ready_at=time_ns() // 1_000_000,
    )
