"""An aggregator dies without a word, on the real broker and blob folder: the next one begins near its end."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from schemas.base import Output
from schemas.events import Event, RequestCoordinates, StepCompleted
from schemas.topics import AGGREGATOR_GROUP, EVENTS, JOINS, LOOP_TOPICS, RESPONSES
from services.aggregator.actions import Actions
from services.aggregator.domain.snapshot import SnapshotRef
from services.aggregator.handlers import Join
from services.aggregator.snapshots import Snapshots
from services.chassis.blobs import FolderBlobStore, Outputs
from services.chassis.clock import LogClock
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.records import partition_of
from services.chassis.kafka.stream import Stream
from services.chassis.kafka.types import Commit, ConsumerSettings, Record, TopicPartition
from services.chassis.metrics import Metrics
from tests.unit.aggregator.log import WINDOW_MS, graph, model, started

pytestmark = pytest.mark.kafka

DEADLINE_S = 30.0
CHAIN = graph(model("a"), model("b", "a")).model_copy(update={"output": {"b": "${steps.b}"}, "output_reads": ("b",)})


class Nobody:
    """There are no conflicts to dead-letter and no workers to stop here."""

    async def fetch(self, coordinates: Collection[RequestCoordinates]) -> dict[RequestCoordinates, Record | None]:
        raise AssertionError("no request is read again")

    def stop_run(self, run_id: str, ended_at_ms: int) -> None:
        """There is no worker to tell."""


class Aggregator:
    """One process's worth of it; `die` is a SIGKILL as far as the broker can tell."""

    def __init__(self, connection: Connection, blobs: Path) -> None:
        self.producer = AioKafkaProducer(connection)
        store, clock = FolderBlobStore(blobs), LogClock()
        actions = Actions(
            clock=clock, producer=self.producer, outputs=Outputs(store), requests=Nobody(), stopper=Nobody(),
            metrics=Metrics(),
        )  # fmt: skip
        snapshots = Snapshots(store, WINDOW_MS, time.monotonic, every_s=0.1)
        self.join = Join(actions, window_ms=WINDOW_MS, clock=clock, producer=self.producer, snapshots=snapshots)
        self.sought: dict[TopicPartition, int] = {}
        settings = ConsumerSettings(group=AGGREGATOR_GROUP, topics=(EVENTS,))
        self.stream = Stream(
            lambda listener: _Noting(connection, settings, listener, self.sought),
            self.producer,
            self.join,
            commit_interval_s=0.05,
            state=self.join,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.producer.start()
        work = (self.stream.run(), self.join.keep_snapshots())
        self._tasks = [asyncio.create_task(part) for part in work]

    async def die(self) -> None:
        """Nothing is committed any more; the group hears of it, which only saves the session time-out."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.producer.stop()


class _Noting(AioKafkaConsumer):
    """Notes where each partition begins."""

    def __init__(self, connection: Connection, settings: ConsumerSettings, listener: object, sought: object) -> None:
        super().__init__(connection, settings, listener)  # type: ignore[arg-type]
        self._sought = sought

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._sought[partition] = offset  # type: ignore[index]
        super().seek(partition, offset)


class Plane:
    """The loop's topics under this test's names."""

    def __init__(
        self, connection: Connection, producer: AioKafkaProducer, stack: AsyncExitStack, blobs: Path
    ) -> None:
        self._connection = connection
        self._producer = producer
        self._stack = stack
        self._blobs = blobs

    async def aggregator(self) -> Aggregator:
        aggregator = Aggregator(self._connection, self._blobs)
        self._stack.push_async_callback(aggregator.die)
        await aggregator.start()
        return aggregator

    async def append(self, *events: Event) -> None:
        await self._producer.send_all([run_record(EVENTS, event) for event in events])

    async def records(self, topic: str, count: int) -> list[Record]:
        """The first so many of a topic."""
        settings = ConsumerSettings(group=None, topics=(topic,))
        reader = AioKafkaConsumer(self._connection, settings, _Silent())
        await reader.start()
        found: list[Record] = []
        try:
            async with asyncio.timeout(DEADLINE_S):
                while len(found) < count:
                    found += await reader.poll(None, max_records=100, timeout_s=0.5)
        finally:
            await reader.stop()
        return found

    async def commit(self, tp: TopicPartition) -> Commit | None:
        """As any tool would see it."""
        async with Admin(self._connection) as admin:
            group, target = self._connection.group(AGGREGATOR_GROUP), admin._target(tp)
            found = await admin._answer(lambda: admin._client.list_consumer_group_offsets(group, partitions=[target]))
        return Commit(found[target].offset, found[target].metadata) if target in found else None


class _Silent:
    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing is held."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Everything is read from its beginning."""


@pytest.fixture
async def plane(connection: Connection, tmp_path: Path) -> AsyncIterator[Plane]:
    async with Admin(connection) as admin, AsyncExitStack() as stack:
        await admin.reconcile(LOOP_TOPICS, replication_factor=1)
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)
        yield Plane(connection, producer, stack, tmp_path / "blobs")


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():  # noqa: ASYNC110  the condition is the broker's state
            await asyncio.sleep(0.05)


def completed(step: str, run_id: str) -> Event:
    return StepCompleted(run_id=run_id, tenant="acme", step=step, attempt=1, output=Output(value=step))


async def test_the_next_aggregator_begins_at_the_snapshot_and_finishes_the_run(plane: Plane) -> None:
    now = int(time.time() * 1_000)
    run = started(CHAIN, log_time=now)
    partition = TopicPartition(EVENTS, partition_of(run.run_id.encode(), 12))
    first = await plane.aggregator()
    await plane.append(run)
    await plane.records(JOINS, 1)
    await plane.append(completed("a", run.run_id))

    async def named() -> bool:
        commit = await plane.commit(partition)
        ref = SnapshotRef.named_by(commit.metadata) if commit else None
        return ref is not None and ref.as_of == 2

    await until(named)
    await first.die()
    second = await plane.aggregator()
    await plane.append(completed("b", run.run_id))
    (response,) = await plane.records(RESPONSES, 1)
    assert b'"output":{"b":"b"}' in (response.value or b"")
    assert second.sought[partition] == 2, "nothing before the snapshot was read again"
    ready = [record.header("task-id") for record in await plane.records(JOINS, 2)]
    assert ready == [f"{run.run_id}/a#1", f"{run.run_id}/b#1"], "no step was made ready twice"
