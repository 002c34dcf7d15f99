"""Where groups stand, and when records were appended, as both brokers tell it."""

import pytest

from services.chassis.kafka import offsets
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.offsets import KafkaOffsetReader, Offsets
from services.chassis.kafka.types import Commit, ConsumerSettings, KafkaError, Outgoing, TopicPartition
from tests.contract.kafka.conftest import Broker, collect

FIRST, SECOND = TopicPartition("letters", 0), TopicPartition("letters", 1)


async def test_every_partition_of_every_group_is_told(broker: Broker) -> None:
    await broker.create_topic("letters", 2)
    await broker.create_topic("bills", 1)
    producer = await broker.producer()
    await producer.send_all([Outgoing("letters", b"x", partition=partition) for partition in (0, 0, 0, 1)])
    consumer = await broker.consumer(ConsumerSettings("readers", ("letters",)))
    await collect(consumer, 4)
    assert await consumer.commit({FIRST: Commit(2)})
    reader = await broker.offset_reader()
    found = await reader.read({"readers": ("letters", "absent"), "payers": ("bills",)})
    assert found == {
        "readers": {FIRST: Offsets(0, 2, 3), SECOND: Offsets(0, None, 1)},
        "payers": {TopicPartition("bills", 0): Offsets(0, None, 0)},
    }


async def test_a_group_without_a_topic_stands_nowhere_and_all_of_them_are_an_error(broker: Broker) -> None:
    await broker.create_topic("letters", 2)
    reader = await broker.offset_reader()
    found = await reader.read({"readers": ("letters",), "payers": ("bills",)})
    assert (len(found["readers"]), found["payers"]) == (2, {})
    with pytest.raises(KafkaError):
        await reader.read({"payers": ("bills",)})


async def test_a_record_is_as_old_as_the_broker_stamped_it(broker: Broker) -> None:
    await broker.create_topic("letters", 2)
    producer = await broker.producer()
    alone = await producer.send_all([Outgoing("letters", b"x", partition=1)])
    batch = await producer.send_all([Outgoing("letters", b"x" * 1_000, partition=0) for _ in range(50)])
    reader = await broker.offset_reader()
    await reader.read({"readers": ("letters",)})
    assert await reader.stamps({FIRST: 37, SECOND: 0}) == {FIRST: batch[37].timestamp, SECOND: alone[0].timestamp}


async def test_a_record_that_is_not_there_has_no_stamp(broker: Broker) -> None:
    await broker.create_topic("letters", 2)
    reader = await broker.offset_reader()
    await reader.read({"readers": ("letters",)})
    assert await reader.stamps({FIRST: 0}) == {}


@pytest.mark.kafka
async def test_what_was_deleted_is_before_the_beginning(real_broker: Broker, connection: Connection) -> None:
    await real_broker.create_topic("letters", 2)
    producer = await real_broker.producer()
    await producer.send_all([Outgoing("letters", b"x", partition=0) for _ in range(5)])
    async with Admin(connection) as admin:
        await admin.delete_before({FIRST: 3})
    reader = await real_broker.offset_reader()
    found = await reader.read({"readers": ("letters",)})
    assert found["readers"][FIRST] == Offsets(3, None, 5)
    assert await reader.stamps({FIRST: 1}) == {}


@pytest.mark.kafka
async def test_a_partition_that_is_added_is_told(real_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "LOOK_AGAIN_S", 0.0)
    await real_broker.create_topic("letters", 2)
    reader = await real_broker.offset_reader()
    assert len((await reader.read({"readers": ("letters",)}))["readers"]) == 2
    await real_broker.create_topic("letters", 3)
    assert TopicPartition("letters", 2) in (await reader.read({"readers": ("letters",)}))["readers"]


async def test_without_a_broker_it_does_not_start() -> None:
    with pytest.raises(KafkaError, match=r"cannot reach Kafka at 127\.0\.0\.1:1"):
        await KafkaOffsetReader(Connection("127.0.0.1:1")).start()
