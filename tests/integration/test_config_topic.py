"""Configuration revisions on the real broker: what one process publishes, others run on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import headway.cli
from schemas.config import REVISIONS_KEPT, Bundle, revision_key
from schemas.topics import CONFIG, LOOP_TOPICS, RESPONSES
from services.chassis.config.folder import load_folder
from services.chassis.config.topic import ConfigFollower, ConfigHistory
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.types import ConsumerSettings, KafkaError, Outgoing

pytestmark = pytest.mark.kafka

TEMPLATE = Path(headway.cli.__file__).parent / "init_template"
DEADLINE_S = 20.0


class Plane:
    """The loop's topics under this test's names, and what was started on them."""

    def __init__(self, connection: Connection, stack: AsyncExitStack) -> None:
        self._connection = connection
        self._stack = stack

    async def reader(self, topic: str = CONFIG, tail: int | None = None) -> LogReader:
        settings = ConsumerSettings(group=None, topics=(topic,))
        reader = LogReader(lambda listener: AioKafkaConsumer(self._connection, settings, listener), tail=tail)
        await reader.start()
        self._stack.push_async_callback(reader.stop)
        return reader

    async def producer(self) -> AioKafkaProducer:
        producer = AioKafkaProducer(self._connection)
        await producer.start()
        self._stack.push_async_callback(producer.stop)
        return producer

    async def history(self) -> ConfigHistory:
        return ConfigHistory(await self.reader(), await self.producer())

    async def follower(self) -> ConfigFollower:
        """Started, and following."""
        follower = ConfigFollower(await self.reader())
        await follower.start()
        following = asyncio.create_task(follower.run())
        self._stack.push_async_callback(_end, following)
        return follower


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def plane(connection: Connection) -> AsyncIterator[Plane]:
    async with Admin(connection) as admin, AsyncExitStack() as stack:
        topics = [topic for topic in LOOP_TOPICS if topic.name in (CONFIG, RESPONSES)]
        await admin.reconcile(topics, replication_factor=1)
        yield Plane(connection, stack)


def bundle(output: Any) -> Bundle:
    steps = [{"id": "a", "value": None}]
    return Bundle.model_validate({"pipelines": [{"name": "p", "steps": steps, "output": output}]})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  the condition is somebody else's state
            await asyncio.sleep(0.01)


async def test_services_take_what_is_published_and_what_is_rolled_back(plane: Plane) -> None:
    follower = await plane.follower()
    assert follower.why_not_ready() is not None

    history = await plane.history()
    written, problems = load_folder(TEMPLATE)
    assert written is not None, problems
    assert await history.publish(written, "from a folder") == 1
    await until(lambda: follower.revision == 1)
    assert follower.live.bundle == written
    assert follower.live.pipeline("hello") is not None

    assert await history.publish(bundle(output=2)) == 2
    await until(lambda: follower.revision == 2)
    assert follower.live.bundle == bundle(output=2)

    await (await plane.history()).rollback(1)
    await until(lambda: follower.revision == 1)
    assert follower.live.bundle == written
    assert (await plane.follower()).revision == 1  # a service that starts now
    entries = await history.entries()
    assert [(entry.revision, entry.comment, entry.current) for entry in entries] == [
        (2, "", False),
        (1, "from a folder", True),
    ]


async def test_old_revisions_are_let_go(plane: Plane) -> None:
    history = await plane.history()
    for number in range(1, REVISIONS_KEPT + 3):
        await history.publish(bundle(output=number))
    fresh = await plane.history()
    assert [entry.revision for entry in await fresh.entries()] == list(range(REVISIONS_KEPT + 2, 2, -1))
    tombstones = [record.key for record in await (await plane.reader()).read_to_end() if record.value is None]
    assert tombstones == [revision_key(1), revision_key(2)]


async def test_a_revision_larger_than_its_topic_takes_is_refused_before_it_is_sent(plane: Plane) -> None:
    history = await plane.history()
    with pytest.raises(KafkaError, match="at most 1048576 are taken"):
        await history.publish(bundle(output="x" * 1_100_000))
    assert await history.publish(bundle(output=1)) == 1


async def test_a_reader_begins_at_the_earliest_record_or_near_the_end(plane: Plane) -> None:
    producer = await plane.producer()
    sent = {b"%d" % number for number in range(1_200)}
    await producer.send_all([Outgoing(RESPONSES, value, value) for value in sorted(sent)])

    everything = await plane.reader(RESPONSES)
    records = await everything.read_to_end()
    assert {record.value for record in records} == sent
    assert {record.topic for record in records} == {RESPONSES}
    assert await everything.read_to_end() == []
    assert await everything.follow(0.05) == []

    newest = await (await plane.reader(RESPONSES, tail=2)).read_to_end()
    last = {partition: max(r.offset for r in records if r.partition == partition) for partition in range(12)}
    assert {(record.partition, record.offset) for record in newest} == {
        (partition, offset - back) for partition, offset in last.items() for back in (0, 1)
    }

    await producer.send_all([Outgoing(RESPONSES, b"new", b"new")])
    async with asyncio.timeout(DEADLINE_S):
        while not (followed := await everything.follow(1.0)):
            pass
    assert [record.value for record in followed] == [b"new"]
