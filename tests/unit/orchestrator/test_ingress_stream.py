"""The ingress topics may change while requests come: nothing is lost, and nothing ends but the stream before."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from schemas.topics import REQUESTS
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.stream import Stream
from services.chassis.kafka.types import ConsumerSettings, Outgoing, Record, TopicPartition
from services.orchestrator.adapters import ingress_stream
from services.orchestrator.adapters.ingress_stream import IngressStream, Topics

ACME = "acme-requests"


class Plane:
    """An ingress stream that copies requests, on an in-memory broker."""

    def __init__(self) -> None:
        self.kafka = InMemoryKafka(clock=lambda: 0)
        for topic in (REQUESTS, ACME, "out"):
            self.kafka.create_topic(topic, 1)
        self.producer = self.kafka.producer()
        self.wanted: Topics = (REQUESTS,)
        self.built: list[Topics] = []
        self.fails: Exception | None = None
        self.ingress = IngressStream(lambda: self.wanted, self.build)
        self.running = asyncio.create_task(self.ingress.run())

    def build(self, topics: Topics) -> Stream:
        self.built.append(topics)
        settings = ConsumerSettings(group="admission", topics=topics)
        return Stream(
            lambda listener: self.kafka.consumer(settings, listener), self.producer, self, commit_interval_s=0.01
        )

    async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
        if self.fails:
            raise self.fails
        return [(record, [Outgoing("out", record.value)]) for record in records]

    def request(self, topic: str, value: bytes) -> None:
        self.kafka.append(TopicPartition(topic, 0), Outgoing(topic, value))

    def copied(self) -> list[bytes | None]:
        return [record.value for record in self.kafka.records("out")]


@pytest.fixture
async def plane(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plane]:
    monkeypatch.setattr(ingress_stream, "CHECK_S", 0.01)
    plane = Plane()
    yield plane
    await plane.ingress.stop()
    await asyncio.gather(plane.running, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition is the runtime's, it has no event for tests
            await asyncio.sleep(0.002)


async def test_a_new_ingress_topic_is_read_and_every_request_is_handled_once(plane: Plane) -> None:
    plane.request(REQUESTS, b"1")
    plane.request(ACME, b"2")
    await until(lambda: plane.copied() == [b"1"])
    assert plane.ingress.progressing
    plane.wanted = (REQUESTS, ACME)
    await until(lambda: plane.copied() == [b"1", b"2"])
    plane.request(REQUESTS, b"3")
    await until(lambda: plane.copied() == [b"1", b"2", b"3"])
    assert plane.built == [(REQUESTS,), (REQUESTS, ACME)]


async def test_a_topic_that_is_no_longer_wanted_is_left_alone(plane: Plane) -> None:
    plane.wanted = (REQUESTS, ACME)
    await until(lambda: plane.built[-1:] == [plane.wanted] and plane.ingress.progressing)
    plane.wanted = (REQUESTS,)
    await until(lambda: plane.built[-1] == (REQUESTS,) and plane.ingress.progressing)
    plane.request(ACME, b"1")
    plane.request(REQUESTS, b"2")
    await until(lambda: plane.copied() == [b"2"])


async def test_it_stops_when_asked_and_has_committed(plane: Plane) -> None:
    plane.request(REQUESTS, b"1")
    await until(lambda: plane.copied() == [b"1"])
    await plane.ingress.stop()
    await plane.running
    assert not plane.ingress.progressing
    assert plane.kafka.group("admission").commits[TopicPartition(REQUESTS, 0)].offset == 1


async def test_what_a_stream_raises_is_raised(plane: Plane) -> None:
    plane.fails = ZeroDivisionError()
    plane.request(REQUESTS, b"1")
    with pytest.raises(ZeroDivisionError):
        await plane.running


async def test_one_that_never_ran_stops_at_once() -> None:
    await IngressStream(lambda: (REQUESTS,), lambda _: pytest.fail("built")).stop()
