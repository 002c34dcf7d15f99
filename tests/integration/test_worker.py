"""Real worker processes on the real broker and store."""

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from headway.plane.ports import free_ports
from headway.plane.valkey import EmbeddedValkey
from schemas import ids
from schemas.base import Priority
from schemas.config import Bundle
from schemas.events import EVENT, StepCompleted, StepFailed
from schemas.fleet import FLEET as STATUSES
from schemas.fleet import WorkerStatus
from schemas.models import Queue, queues
from schemas.redis_keys import DEAD_RUN_TTL_S, DEAD_RUNS_CHANNEL, EndedRun, dead_run_key, encode_ended_runs
from schemas.tasks import InferenceTask
from schemas.topics import CONFIG, EVENTS, FLEET, all_topics
from services.chassis.config.topic import ConfigHistory
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import ConsumerSettings, Outgoing
from services.chassis.settings import environment

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
LANES = list(Priority)


def _model_class(slots: int, latency_ms: float, **more: Any) -> dict[str, Any]:
    engine = {"kind": "simulated", "latency_ms": latency_ms, "max_batch": 32}
    return {"backends": [{"name": "local", "engine": engine}], "slots": slots, **more}


BUNDLE = Bundle.model_validate(
    {
        "model_classes": {
            "embedding": _model_class(8, 2, rank="fast", batch={"max_size": 32, "max_wait": 2}),
            "llm": _model_class(4, 5_000),
            "tools": _model_class(16, 20),
        }
    }
)
QUEUES = {queue.model_class: queue for queue in queues(BUNDLE.model_classes)}


class Process:
    """A worker process, and what can be seen of it from outside."""

    def __init__(self, plane: "Plane", classes: tuple[str, ...]) -> None:
        (self.port,) = free_ports(1)
        self.log = plane.folder / f"worker-{self.port}.log"
        options = [word for name in classes for word in ("--model-class", name)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headway", "worker", *options],
                stdout=log,
                stderr=log,
                env=environment(
                    PYTHONPATH=str(ROOT),
                    HEADWAY_HOME=str(plane.folder),
                    HEADWAY_KAFKA_BOOTSTRAP_SERVERS=plane.connection.bootstrap_servers,
                    HEADWAY_KAFKA_TOPIC_PREFIX=plane.connection.topic_prefix,
                    HEADWAY_KAFKA_GROUP_PREFIX=plane.connection.group_prefix,
                    HEADWAY_REDIS_URL=plane.redis_url,
                    HEADWAY_WORKER_METRICS_PORT=str(self.port),
                    HEADWAY_WORKER_HOST="host-under-test",
                ),
            )

    async def until_ready(self) -> None:
        async def ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return (await self.get("/readyz")).startswith("HTTP/1.1 200")

        await until(ready)

    async def get(self, path: str) -> str:
        """The answer of its side door; empty when there is none."""
        try:
            stream, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return ""
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        answer = (await stream.read()).decode()
        writer.close()
        return answer

    async def ended(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, 10)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=10)


class Plane:
    """The topics and the store of one test, its tasks, and every event so far."""

    def __init__(self, connection: Connection, redis_url: str, folder: Path, producer: AioKafkaProducer) -> None:
        self.connection, self.redis_url, self.folder = connection, redis_url, folder
        self._producer = producer
        self.events: list[StepCompleted | StepFailed] = []
        self.statuses: list[WorkerStatus] = []

    @asynccontextmanager
    async def worker(self, *classes: str) -> AsyncIterator[Process]:
        process = Process(self, classes)
        try:
            await process.until_ready()
            yield process
        finally:
            process.close()

    def task(self, model_class: str, lane: Priority = Priority.STANDARD, **fields: Any) -> InferenceTask:
        run_id = str(uuid4())
        deadline_at = int((time.time() + fields.pop("deadline_s", 60)) * 1_000)
        return InferenceTask(
            run_id=run_id,
            task_id=ids.task_id(run_id, "step", 1),
            tenant="acme",
            pipeline="ask",
            step="step",
            attempt=1,
            model_class=model_class,
            backend="local",
            lane=lane,
            deadline_at=deadline_at,
            step_deadline_at=deadline_at,
            **{"input": {"text": "x"}, **fields},
        )

    async def put(self, *tasks: InferenceTask) -> None:
        await self._producer.send_all([_record(QUEUES[task.model_class], task) for task in tasks])

    async def append(self, record: Outgoing) -> None:
        await self._producer.send_all([record])

    async def follow(self, topic: str) -> None:
        """Collects what is appended."""
        async with read(self.connection, topic) as reader:
            while True:
                for record in await reader.follow(0.2):
                    self._collect(topic, record.value or b"")

    def _collect(self, topic: str, value: bytes) -> None:
        if topic == FLEET:
            status = STATUSES.validate_json(value)
            if isinstance(status, WorkerStatus):
                self.statuses.append(status)
        else:
            event = EVENT.validate_json(value)
            assert isinstance(event, StepCompleted | StepFailed)
            self.events.append(event)

    async def until_ended(self, *tasks: InferenceTask, timeout_s: float = 30.0) -> None:
        """Every task has its event."""

        async def ended() -> bool:
            return {task.run_id for task in tasks} <= {event.run_id for event in self.events}

        await until(ended, timeout_s)

    async def lag(self, queue: Queue) -> int:
        async with Admin(self.connection) as admin:
            return sum(
                lag.end - (lag.committed or 0) for lag in (await admin.lag(queue.group, [queue.topic])).values()
            )


def _record(queue: Queue, task: InferenceTask) -> Outgoing:
    lane = queue.lanes.of(task.lane)
    partition = lane[int(task.run_id[:8], 16) % len(lane)]
    return run_record(queue.topic, task, partition=partition, more={"task-id": task.task_id})


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110  another process has no event to wait for
            await asyncio.sleep(0.02)


@asynccontextmanager
async def read(connection: Connection, topic: str) -> AsyncIterator[LogReader]:
    settings = ConsumerSettings(group=None, topics=(topic,))
    reader = LogReader(lambda listener: AioKafkaConsumer(connection, settings, listener))
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


@pytest.fixture
async def plane(connection: Connection, redis_url: str, tmp_path: Path) -> AsyncIterator[Plane]:
    wanted = {CONFIG, EVENTS, FLEET} | {name for q in QUEUES.values() for name in (q.topic, f"{q.topic}-dlq")}
    topics = [topic for topic in all_topics(BUNDLE.model_classes, {}) if topic.name in wanted]
    async with Admin(connection) as admin:
        await admin.reconcile(topics, replication_factor=1)
    producer = AioKafkaProducer(connection)
    await producer.start()
    async with read(connection, CONFIG) as config:
        await ConfigHistory(config, producer).publish(BUNDLE)
    plane = Plane(connection, redis_url, tmp_path, producer)
    followers = [asyncio.create_task(plane.follow(topic)) for topic in (EVENTS, FLEET)]
    yield plane
    for follower in followers:
        follower.cancel()
    for outcome in await asyncio.gather(*followers, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome
    await producer.stop()


async def test_tasks_of_every_lane_are_run_committed_and_told_of(plane: Plane) -> None:
    tasks = [plane.task("tools", LANES[n % 3]) for n in range(300)]
    await plane.put(*tasks)
    async with plane.worker("tools") as worker:
        await plane.until_ended(*tasks)
        text = await worker.get("/metrics")
        assert 'headway_slots{backend="local",model_class="tools"} 16.0' in text
        assert await worker.ended() == 0
    assert all(isinstance(event, StepCompleted) for event in plane.events)
    assert len(plane.events) == 300
    assert await plane.lag(QUEUES["tools"]) == 0

    async def told() -> bool:
        return {"warm", "draining"} <= {status.state for status in plane.statuses}

    await until(told)
    assert {(s.host, s.model_class, s.backend, s.slots) for s in plane.statuses} == {
        ("host-under-test", "tools", "local", 16)
    }


async def test_embeddings_never_wait_for_an_llm_in_the_same_process(plane: Plane) -> None:
    async with plane.worker("llm", "embedding") as worker:
        await plane.put(*(plane.task("llm") for _ in range(8)))

        async def full() -> bool:
            return 'headway_slots_busy{backend="local",model_class="llm"} 3.0' in await worker.get("/metrics")

        await until(full)
        embeddings = [plane.task("embedding", Priority.INTERACTIVE) for _ in range(200)]
        began = time.monotonic()
        await plane.put(*embeddings)
        await plane.until_ended(*embeddings)
        assert time.monotonic() - began < 2.5
        assert not [event for event in plane.events if event.model_class == "llm"]


async def test_every_task_survives_the_death_of_its_worker(plane: Plane) -> None:
    tasks = [plane.task("tools", LANES[n % 3]) for n in range(600)]
    async with plane.worker("tools") as first, plane.worker("tools"):
        await plane.put(*tasks)

        async def under_way() -> bool:
            return len(plane.events) > 50

        await until(under_way)
        await first.ended(signal.SIGKILL)
        await plane.until_ended(*tasks, timeout_s=40)
    ran = Counter(event.run_id for event in plane.events)
    repeated = sum(ran.values()) - len(tasks)
    assert repeated <= 64, "only what was under way when it died may run again"


async def test_scaling_out_and_in_runs_nothing_twice(plane: Plane) -> None:
    tasks = [plane.task("tools", LANES[n % 3]) for n in range(1_200)]
    async with plane.worker("tools") as first:
        await plane.put(*tasks)
        async with plane.worker("tools"):
            assert await first.ended() == 0
            await plane.until_ended(*tasks)
    assert len(plane.events) == len(tasks)


async def test_a_worker_sleeps_and_wakes_as_it_is_told_by_signals(plane: Plane) -> None:
    before, after = plane.task("tools"), plane.task("tools")
    await plane.put(before)
    async with plane.worker("tools") as worker:
        worker.process.send_signal(signal.SIGUSR1)

        async def sleeps() -> bool:
            return "tools: asleep\n" in await worker.get("/readyz")

        await until(sleeps)
        worker.process.send_signal(signal.SIGUSR2)
        await plane.put(after)
        await plane.until_ended(before, after)
        woken = 'headway_cold_start_seconds_count{backend="local",from="asleep",model_class="tools"} 1.0'
        assert woken in await worker.get("/metrics")

    async def told() -> bool:
        return {"warm", "asleep"} <= {status.state for status in plane.statuses}

    await until(told)
    assert min(status.start_ms for status in plane.statuses if status.start_ms is not None) > 100, "a process's start"
    assert len(plane.events) == 2


async def test_the_end_of_a_run_stops_its_task(plane: Plane) -> None:
    async with plane.worker("llm") as worker:
        task, other = plane.task("llm"), plane.task("llm")
        await plane.put(task, other)

        async def busy(count: int) -> bool:
            return f'headway_slots_busy{{backend="local",model_class="llm"}} {count}.0' in await worker.get(
                "/metrics"
            )

        await until(lambda: busy(2))
        redis = Redis.from_url(plane.redis_url)
        ended = EndedRun(task.run_id, task.deadline_at)
        await redis.set(dead_run_key(task.run_id), ended.deadline_at, ex=DEAD_RUN_TTL_S)
        await redis.publish(DEAD_RUNS_CHANNEL, encode_ended_runs([ended]))
        await redis.aclose()
        await until(lambda: busy(1), timeout_s=1.0)
        await plane.until_ended(other)
    assert [event.run_id for event in plane.events] == [other.run_id]


async def test_poison_is_put_aside_and_its_step_fails(plane: Plane) -> None:
    task, good = plane.task("tools"), plane.task("tools")
    headers = (("task-id", task.task_id.encode()), ("tenant", b"acme"), ("odd", b"\xff"))
    await plane.append(Outgoing(QUEUES["tools"].topic, b'{"run_id": NaN', b"key", headers, partition=4))
    await plane.put(good)
    async with plane.worker("tools"):
        await plane.until_ended(task, good)
        async with read(plane.connection, f"{QUEUES['tools'].topic}-dlq") as letters:
            [letter] = await letters.read_to_end()
    assert (letter.key, letter.value) == (b"key", b'{"run_id": NaN')
    assert letter.header("x-error-class") == "undecodable"
    assert {event.run_id: event.type for event in plane.events} == {
        task.run_id: "step-failed",
        good.run_id: "step-completed",
    }


async def test_work_goes_on_when_the_store_dies(plane: Plane, tmp_path: Path) -> None:
    valkey = EmbeddedValkey(tmp_path / "valkey", free_ports(1)[0])
    await valkey.start(lambda _: None)
    plane.redis_url = valkey.url
    async with plane.worker("tools"):
        tasks = [plane.task("tools") for _ in range(400)]
        await plane.put(*tasks)

        async def under_way() -> bool:
            return len(plane.events) > 50

        await until(under_way)
        await valkey.stop()
        await plane.until_ended(*tasks)
    assert len(plane.events) == len(tasks)


async def test_a_worker_stopped_before_the_first_configuration_ends_well(
    connection: Connection, redis_url: str, tmp_path: Path
) -> None:
    async with Admin(connection) as admin:
        await admin.reconcile([topic for topic in all_topics({}, {}) if topic.name == CONFIG], replication_factor=1)
    worker = Process(Plane(connection, redis_url, tmp_path, AioKafkaProducer(connection)), ("tools",))

    async def waits() -> bool:
        assert worker.process.poll() is None, worker.log.read_text()
        return bool(await worker.get("/healthz"))

    await until(waits)
    assert await worker.ended() == 0, worker.log.read_text()


async def test_a_class_that_is_not_configured_is_named(plane: Plane) -> None:
    worker = Process(plane, ("tols",))
    assert await asyncio.to_thread(worker.process.wait, 30) == 2
    assert "no model class tols; configured are: embedding, llm, tools" in worker.log.read_text()
