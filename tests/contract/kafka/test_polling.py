"""What a poll returns, and what it leaves."""

import asyncio

import pytest

from services.chassis.kafka.types import ConsumerSettings, KafkaError, Outgoing, Record, TopicPartition
from tests.contract.kafka.conftest import Broker, collect, until

MEMBER = ConsumerSettings(group="readers", topics=("letters",))
FIRST, SECOND = TopicPartition("letters", 0), TopicPartition("letters", 1)


async def fill(broker: Broker, each: int) -> None:
    await broker.create_topic("letters", 2)
    producer = await broker.producer()
    await producer.send_all([Outgoing("letters", b"%d" % n, partition=p) for n in range(each) for p in (0, 1)])


def offsets(records: list[Record]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


async def test_a_poll_returns_only_the_partitions_asked_for(broker: Broker) -> None:
    await fill(broker, each=5)
    consumer = await broker.consumer(MEMBER)
    assert offsets(await collect(consumer, 5, [SECOND])) == [(1, n) for n in range(5)]
    assert offsets(await collect(consumer, 5, [FIRST])) == [(0, n) for n in range(5)]


async def test_a_poll_returns_at_most_what_is_asked_for_and_the_next_one_goes_on(broker: Broker) -> None:
    await fill(broker, each=50)
    consumer = await broker.consumer(MEMBER)
    records: list[Record] = []
    async with asyncio.timeout(20):
        while len(records) < 100:
            polled = await consumer.poll(None, max_records=7, timeout_s=0.1)
            assert len(polled) <= 7
            records += polled
    assert offsets(records) == [(p, n) for p in (0, 1) for n in range(50)]


async def test_a_poll_for_nothing_returns_nothing_and_loses_nothing(broker: Broker) -> None:
    await fill(broker, each=3)
    consumer = await broker.consumer(MEMBER)
    await until(lambda: len(consumer.assignment()) == 2, consumer)
    for _ in range(3):
        assert not await consumer.poll([], max_records=10, timeout_s=0.05)
        assert not await consumer.poll(None, max_records=0, timeout_s=0.05)
        assert not await consumer.poll([TopicPartition("letters", 9)], max_records=10, timeout_s=0.05)
    assert len(await collect(consumer, 6)) == 6


async def test_a_poll_waits_no_longer_than_it_may(broker: Broker) -> None:
    await broker.create_topic("letters", 2)
    consumer = await broker.consumer(MEMBER)
    await until(lambda: len(consumer.assignment()) == 2, consumer)
    async with asyncio.timeout(5):
        assert not await consumer.poll(None, max_records=10, timeout_s=0.2)


async def test_a_waiting_poll_returns_when_a_record_arrives(broker: Broker) -> None:
    await broker.create_topic("letters", 2)
    consumer, producer = await broker.consumer(MEMBER), await broker.producer()
    await until(lambda: len(consumer.assignment()) == 2, consumer)
    waiting = asyncio.create_task(consumer.poll(None, max_records=10, timeout_s=15))
    await producer.send_all([Outgoing("letters", b"x")])
    async with asyncio.timeout(10):
        assert len(await waiting) == 1


async def test_a_sought_position_is_read_from(broker: Broker) -> None:
    await fill(broker, each=10)
    consumer = await broker.consumer(MEMBER)
    await collect(consumer, 20)
    consumer.seek(FIRST, 7)
    assert offsets(await collect(consumer, 3)) == [(0, 7), (0, 8), (0, 9)]
    assert (await consumer.positions([FIRST, SECOND])) == {FIRST: 10, SECOND: 10}


async def test_beginning_and_end_are_told_also_for_partitions_of_others(broker: Broker) -> None:
    await fill(broker, each=4)
    await broker.create_topic("empty", 1)
    consumer = await broker.consumer(ConsumerSettings(group="readers", topics=("letters", "empty")))
    empty = TopicPartition("empty", 0)
    assert await consumer.beginning_offsets([FIRST, empty]) == {FIRST: 0, empty: 0}
    assert await consumer.end_offsets([FIRST, SECOND, empty]) == {FIRST: 4, SECOND: 4, empty: 0}


async def test_a_reader_outside_any_group_reads_everything_from_the_beginning(broker: Broker) -> None:
    await fill(broker, each=4)
    reader = ConsumerSettings(group=None, topics=("letters",))
    for consumer in (await broker.consumer(reader), await broker.consumer(reader)):
        assert consumer.assignment() == {FIRST, SECOND}
        assert len(await collect(consumer, 8)) == 8
        assert await consumer.committed([FIRST, SECOND]) == {}


@pytest.mark.kafka
async def test_a_client_that_learns_of_no_leaders_any_more_fails_its_next_poll(
    real_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library goes on: it fetches, but waits for its coordinator for ever."""
    await fill(real_broker, each=1)
    consumer = await real_broker.consumer(MEMBER)
    await collect(consumer, 2)
    client = consumer._client._client  # type: ignore[attr-defined]

    async def closed(*_: object) -> bool:
        raise RuntimeError("unable to perform operation on a transport; the handler is closed")

    monkeypatch.setattr(client, "_metadata_update", closed)
    client.force_metadata_update()
    with pytest.raises(KafkaError, match="learns of no leaders any more"):
        await until(lambda: False, consumer)
