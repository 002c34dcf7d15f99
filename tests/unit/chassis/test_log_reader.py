"""A reader outside any group, with the in-memory broker."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from services.chassis.kafka import log_reader
from services.chassis.kafka.in_memory import InMemoryConsumer, InMemoryKafka
from services.chassis.kafka.log_reader import EnduringLog, LogReader
from services.chassis.kafka.types import ConsumerSettings, KafkaError, Outgoing, Record, TopicPartition

SETTINGS = ConsumerSettings(group=None, topics=("log",))


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=lambda: 0)
    kafka.create_topic("log", 2)
    for number in range(2_000):
        kafka.append(TopicPartition("log", number % 2), Outgoing("log", b"%d" % number))
    return kafka


async def started(kafka: InMemoryKafka, tail: int | None = None) -> LogReader:
    reader = LogReader(lambda listener: kafka.consumer(SETTINGS, listener), tail=tail)
    await reader.start()
    return reader


async def test_everything_is_read_once(kafka: InMemoryKafka) -> None:
    reader = await started(kafka)
    assert {record.value for record in await reader.read_to_end()} == {b"%d" % number for number in range(2_000)}
    assert await reader.read_to_end() == []
    assert await reader.follow(0.01) == []
    kafka.append(TopicPartition("log", 1), Outgoing("log", b"new"))
    assert [record.value for record in await reader.follow(5)] == [b"new"]
    await reader.stop()


@pytest.mark.parametrize(("tail", "count"), [(0, 0), (3, 6), (5_000, 2_000)])
async def test_a_reader_may_begin_near_the_end(kafka: InMemoryKafka, tail: int, count: int) -> None:
    reader = await started(kafka, tail)
    assert len(await reader.read_to_end()) == count
    await reader.stop()


class _Stuck(InMemoryConsumer):
    async def poll(
        self, partitions: Collection[TopicPartition] | None, *, max_records: int, timeout_s: float
    ) -> Sequence[Record]:
        return ()


async def test_a_broker_that_gives_nothing_is_an_error(kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "READ_TIMEOUT_S", 0.0)
    reader = LogReader(lambda listener: _Stuck(kafka, SETTINGS, listener))
    await reader.start()
    with pytest.raises(KafkaError, match="the end of log was not reached within 0 s"):
        await reader.read_to_end()
    await reader.stop()


class _Failing(InMemoryConsumer):
    async def poll(
        self, partitions: Collection[TopicPartition] | None, *, max_records: int, timeout_s: float
    ) -> Sequence[Record]:
        raise KafkaError("the client has failed")


class _Absent(InMemoryConsumer):
    async def start(self) -> None:
        raise KafkaError("no broker")


async def test_one_that_endures_goes_on_with_another_reader(kafka: InMemoryKafka) -> None:
    kinds = iter((_Failing, _Absent, InMemoryConsumer))

    def reader() -> LogReader:
        kind = next(kinds)
        return LogReader(lambda listener: kind(kafka, SETTINGS, listener), tail=1)

    log = EnduringLog(reader, again_s=0.0)
    await log.start()
    assert [await log.follow(0.01) for _ in range(2)] == [(), ()]
    found: list[Record] = []
    async with asyncio.timeout(5):
        while len(found) < 2:
            found += await log.follow(0.1)
    assert sorted(record.value or b"" for record in found) == [b"1998", b"1999"]
    await log.stop()
