"""Revisions on their topic, with the in-memory broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import pytest

from schemas.config import CURRENT_KEY, REVISIONS_KEPT, Bundle, Revision, revision_key
from schemas.topics import CONFIG
from services.chassis.config.live import LiveConfig
from services.chassis.config.problems import ConfigError
from services.chassis.config.revisions import QueueFollower
from services.chassis.config.topic import ConfigFollower, ConfigHistory, HistoryEntry
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.types import ConsumerSettings, Outgoing, TopicPartition

READER = ConsumerSettings(group=None, topics=(CONFIG,))


def bundle(output: Any = 1, value: Any = 1) -> Bundle:
    steps = [{"id": "a", "value": value}]
    return Bundle.model_validate({"pipelines": [{"name": "p", "steps": steps, "output": output}]})


class Plane:
    """A broker with the config topic, and those who read and write it."""

    def __init__(self) -> None:
        ticks = count(1_000)
        self.kafka = InMemoryKafka(lambda: next(ticks))
        self.kafka.create_topic(CONFIG, 1)
        self.producer = self.kafka.producer()
        self._readers: list[LogReader] = []

    async def reader(self) -> LogReader:
        reader = LogReader(lambda listener: self.kafka.consumer(READER, listener))
        await reader.start()
        self._readers.append(reader)
        return reader

    async def history(self) -> ConfigHistory:
        return ConfigHistory(await self.reader(), self.producer)

    async def follower(self, on_revision: Callable[[LiveConfig], None] = lambda _: None) -> ConfigFollower:
        follower = ConfigFollower(await self.reader(), on_revision)
        await follower.start()
        return follower

    def append(self, key: bytes | None, value: bytes | None) -> None:
        self.kafka.append(TopicPartition(CONFIG, 0), Outgoing(CONFIG, value, key))

    def keys(self) -> list[bytes | None]:
        return [record.key for record in self.kafka.records(CONFIG)]

    async def stop(self) -> None:
        for reader in self._readers:
            await reader.stop()


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    plane = Plane()
    yield plane
    await plane.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  the condition is somebody else's state
            await asyncio.sleep(0)


async def test_publishing_writes_the_revision_and_then_switches_to_it(plane: Plane) -> None:
    history = await plane.history()
    assert await history.current() is None
    assert await history.publish(bundle(output=1), "the first") == 1
    assert await history.publish(bundle(output=2)) == 2
    assert plane.keys() == [b"revision/1", b"current", b"revision/2", b"current"]
    current = await history.current()
    assert current is not None
    assert (current.revision, current.bundle) == (2, bundle(output=2))
    assert await history.entries() == [HistoryEntry(2, 1002, "", True), HistoryEntry(1, 1000, "the first", False)]


async def test_what_is_absent_and_what_is_null_stay_apart_on_the_topic(plane: Plane) -> None:
    written = Bundle.model_validate(
        {
            "pipelines": [
                {
                    "name": "p", "output": None,
                    "steps": [
                        {"id": "a", "value": None},
                        {"id": "b", "model_class": "m", "fallback": [{"value": None}], "timeout": "20s"},
                    ],
                }
            ],
            "model_classes": {"m": {"backends": [{"name": "x", "engine": {"kind": "simulated"}}]}},
        }
    )  # fmt: skip
    await (await plane.history()).publish(written)
    current = await (await plane.history()).current()
    assert current is not None
    assert current.bundle == written
    assert (await plane.follower()).live.bundle == written


async def test_a_follower_starts_on_the_revision_in_force_and_goes_along(plane: Plane) -> None:
    history, seen = await plane.history(), list[int]()
    await history.publish(bundle(output=1))
    await history.publish(bundle(output=2))
    follower = await plane.follower(lambda live: seen.append(live.revision))
    assert (follower.revision, follower.why_not_ready(), seen) == (2, None, [2])
    assert (await follower.first()).revision == 2
    running = asyncio.create_task(follower.run())
    await history.publish(bundle(output=3))
    await until(lambda: follower.revision == 3)
    await history.rollback(1)
    await until(lambda: follower.revision == 1)
    assert follower.live.bundle == bundle(output=1)
    assert seen == [2, 3, 1]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_who_needs_queues_alone_follows_them(plane: Plane) -> None:
    seen: list[list[str]] = []
    follower = QueueFollower(await plane.reader(), lambda queues: seen.append([queue.label for queue in queues]))
    await follower.start()
    assert (follower.revision, list(follower.live)) == (None, [])
    classes = {"m": {"backends": [{"name": "x", "engine": {"kind": "simulated"}}]}}
    await (await plane.history()).publish(Bundle.model_validate({"model_classes": classes}))
    running = asyncio.create_task(follower.run())
    await until(lambda: follower.revision == 1)
    assert seen == [["m"]]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_before_the_first_apply_a_follower_has_an_empty_configuration(plane: Plane) -> None:
    follower = await plane.follower()
    assert (follower.revision, follower.live.revision, follower.live.pipelines) == (None, 0, [])
    assert follower.why_not_ready() == "no configuration yet: run `headway config apply`"
    running = asyncio.create_task(follower.run())
    first = asyncio.create_task(follower.first())
    await asyncio.sleep(0)
    assert not first.done()
    await (await plane.history()).publish(bundle())
    async with asyncio.timeout(5):
        assert (await first).revision == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_revision_alone_switches_nothing(plane: Plane) -> None:
    plane.append(revision_key(1), b'{"revision": 1, "bundle": {}}')
    assert (await plane.follower()).revision is None
    plane.append(CURRENT_KEY, b'{"revision": 1}')
    follower = await plane.follower()
    assert follower.revision == 1
    plane.append(revision_key(1), b'{"revision": 1, "bundle": {"tenants": {"acme": {}}}}')
    plane.append(CURRENT_KEY, b'{"revision": 1}')
    assert (await plane.follower()).live.bundle.tenants.keys() == {"acme"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (revision_key(2), b"not JSON"),
        (revision_key(2), b'{"revision": 2, "bundle": {"colour": "red"}}'),
        (revision_key(2), b'{"revision": 2, "bundle": {"pipelines": [{"name": "p", "steps": [], "output": 1}]}}'),
        (revision_key(2), None),
        (revision_key(3), b'{"revision": 3, "bundle": {}}'),
        (b"revision/x", b"{}"),
        (b"something", b"{}"),
        (None, b"{}"),
    ],
)
async def test_a_revision_that_cannot_be_used_leaves_the_last_one(
    plane: Plane, key: bytes | None, value: bytes | None
) -> None:
    await (await plane.history()).publish(bundle())
    seen = list[int]()
    follower = await plane.follower(lambda live: seen.append(live.revision))
    running = asyncio.create_task(follower.run())
    plane.append(key, value)
    plane.append(CURRENT_KEY, b'{"revision": 2}')
    plane.append(CURRENT_KEY, b"not JSON")
    plane.append(CURRENT_KEY, None)
    plane.append(revision_key(4), b'{"revision": 4, "bundle": {"tenants": {"acme": {}}}}')
    plane.append(CURRENT_KEY, b'{"revision": 4}')
    await until(lambda: follower.revision == 4)
    assert seen == [1, 4]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_revision_with_an_error_in_it_is_not_switched_to(plane: Plane) -> None:
    await (await plane.history()).publish(bundle())
    broken = Revision(revision=2, bundle=bundle(value="${b}"))
    plane.append(revision_key(2), broken.model_dump_json().encode())
    plane.append(CURRENT_KEY, b'{"revision": 2}')
    follower = await plane.follower()
    assert follower.revision is None  # a new service has no older one to stay on
    history = await plane.history()
    with pytest.raises(ConfigError, match="unknown name `b`"):
        await history.rollback(2)
    with pytest.raises(ConfigError, match="unknown name `b`"):
        await history.publish(bundle(value="${b}"))
    await history.rollback(1)
    assert (await plane.follower()).revision == 1


async def test_only_the_last_revisions_are_kept(plane: Plane) -> None:
    history = await plane.history()
    for number in range(1, REVISIONS_KEPT + 4):
        assert await history.publish(bundle(output=number)) == number
    entries = await history.entries()
    assert len(entries) == REVISIONS_KEPT
    assert [entry.revision for entry in entries][-1] == 4
    tombstones = [record.key for record in plane.kafka.records(CONFIG) if record.value is None]
    assert tombstones == [revision_key(1), revision_key(2), revision_key(3)]
    with pytest.raises(ConfigError, match=r"there is no revision 3; kept: 4, 5, .*, 53"):
        await history.rollback(3)


async def test_rolling_back_needs_a_revision(plane: Plane) -> None:
    with pytest.raises(ConfigError, match="there is no revision 1; kept: none"):
        await (await plane.history()).rollback(1)


async def test_a_revision_number_is_never_used_twice(plane: Plane) -> None:
    plane.append(CURRENT_KEY, b'{"revision": 7}')
    history = await plane.history()
    with pytest.raises(ConfigError, match="there is no revision 7"):
        await history.current()
    assert await history.publish(bundle()) == 8


async def test_a_revision_that_this_version_cannot_read_is_still_listed(plane: Plane) -> None:
    history = await plane.history()
    await history.publish(bundle(), "good")
    plane.append(revision_key(2), b'{"revision": 2, "bundle": {"later": 1}}')
    assert [(entry.revision, entry.comment, entry.current) for entry in await history.entries()] == [
        (2, None, False),
        (1, "good", True),
    ]
    with pytest.raises(ConfigError, match=r"revision 2 cannot be read: bundle\.later: Extra inputs"):
        await history.rollback(2)


async def test_two_who_publish_at_the_same_time_find_out(plane: Plane) -> None:
    first, second = await plane.history(), await plane.history()
    outcomes = await asyncio.gather(
        first.publish(bundle(output=1)), second.publish(bundle(output=2)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, ConfigError)]
    assert refused
    assert "somebody else applied a configuration at the same time" in str(refused[0])
    assert await (await plane.history()).publish(bundle(output=3)) >= 2
    assert (await plane.follower()).live.bundle == bundle(output=3)
