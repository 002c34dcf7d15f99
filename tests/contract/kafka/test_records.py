"""What goes in comes out: order, keys, headers, sizes."""

import pytest

from services.chassis.kafka import aiokafka_adapter
from services.chassis.kafka.records import max_record_bytes, partition_of
from services.chassis.kafka.types import ConsumerSettings, KafkaError, Outgoing, RecordTooLargeError, TopicPartition
from tests.contract.kafka.conftest import Broker, collect

READER = ConsumerSettings(group=None, topics=("letters",))


async def test_records_of_a_partition_keep_their_order(broker: Broker) -> None:
    await broker.create_topic("letters", 3)
    producer = await broker.producer()
    await producer.send_all([Outgoing("letters", b"%d" % n, key=b"%d" % (n % 7)) for n in range(300)])
    records = await collect(await broker.consumer(READER), 300)
    for key in {record.key for record in records}:
        values = [int(record.value or b"") for record in records if record.key == key]
        assert values == sorted(values)
    for partition in range(3):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(len(offsets)))


async def test_a_key_goes_to_the_partition_that_kafkas_own_clients_choose(broker: Broker) -> None:
    await broker.create_topic("letters", 5)
    keys = [b"", b"a", b"run-17", "Grüße".encode(), bytes(range(256))]
    producer = await broker.producer()
    appended = await producer.send_all([Outgoing("letters", b"", key=key) for key in keys])
    assert [found.partition for found in appended] == [partition_of(key, 5) for key in keys]


async def test_an_acknowledgement_says_where_and_when(broker: Broker) -> None:
    await broker.create_topic("letters", 2)
    producer = await broker.producer()
    appended = await producer.send_all([Outgoing("letters", b"x", partition=1) for _ in range(3)])
    records = await collect(await broker.consumer(READER), 3)
    assert [found.offset for found in appended] == [0, 1, 2]
    assert [(found.partition, found.offset, found.timestamp) for found in appended] == [
        (record.partition, record.offset, record.timestamp) for record in records
    ]


async def test_keys_values_and_headers_are_bytes_and_stay_as_they_are(broker: Broker) -> None:
    await broker.create_topic("letters", 1)
    headers = (("run-id", b"1"), ("odd", b"\xff\x00\xfe"), ("run-id", b"2"), ("empty", b""))
    producer = await broker.producer()
    await producer.send_all(
        [Outgoing("letters", b"\xff\x00", key=b"\xfe", headers=headers), Outgoing("letters", b"")]
    )
    first, second = await collect(await broker.consumer(READER), 2)
    assert (first.key, first.value, first.headers) == (b"\xfe", b"\xff\x00", headers)
    assert (second.key, second.value, second.headers) == (None, b"", ())
    assert first.tp == TopicPartition("letters", 0)
    assert (first.header("run-id"), first.header("odd"), first.header("absent")) == ("2", None, None)


async def test_a_record_that_is_too_large_is_refused_and_the_producer_goes_on(broker: Broker) -> None:
    await broker.create_topic("letters", 1)
    producer = await broker.producer()
    limit = max_record_bytes("letters")
    with pytest.raises(RecordTooLargeError, match="letters"):
        await producer.send(Outgoing("letters", b"x" * limit))
    appended = await producer.send_all([Outgoing("letters", b"x" * (limit - 200)), Outgoing("letters", b"after")])
    assert [found.offset for found in appended] == [0, 1]
    records = await collect(await broker.consumer(READER), 2)
    assert len(records[0].value or b"") == limit - 200


async def test_a_dead_letter_topic_takes_larger_records(broker: Broker) -> None:
    assert max_record_bytes("letters-dlq") > max_record_bytes("letters")
    producer = await broker.producer()
    await broker.create_topic("letters", 1)
    with pytest.raises(RecordTooLargeError, match="letters-dlq"):
        await producer.send(Outgoing("letters-dlq", b"x" * max_record_bytes("letters-dlq")))


async def test_a_partition_that_does_not_exist_is_an_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiokafka_adapter, "MAX_DENIALS", 3)
    await broker.create_topic("letters", 2)
    producer = await broker.producer()
    with pytest.raises(KafkaError, match="no partition 2"):
        await producer.send(Outgoing("letters", b"x", partition=2))
    assert not producer.dead.done()


async def test_a_partition_that_the_topic_has_just_got_takes_records_at_once(broker: Broker) -> None:
    await broker.create_topic("letters", 2)
    producer = await broker.producer()
    await producer.send_all([Outgoing("letters", b"x", partition=1)])
    await broker.create_topic("letters", 5)
    appended = await producer.send_all([Outgoing("letters", b"x", partition=partition) for partition in (4, 2, 0)])
    assert [found.partition for found in appended] == [4, 2, 0]
    records = await collect(await broker.consumer(READER), 4)
    assert sorted(record.partition for record in records) == [0, 1, 2, 4]


async def test_records_without_a_key_are_spread(broker: Broker) -> None:
    await broker.create_topic("letters", 2)
    producer = await broker.producer()
    appended = await producer.send_all([Outgoing("letters", b"x") for _ in range(200)])
    assert {found.partition for found in appended} == {0, 1}


async def test_a_stopped_producer_takes_no_more(broker: Broker) -> None:
    await broker.create_topic("letters", 1)
    producer = await broker.producer()
    await producer.stop()
    with pytest.raises(KafkaError, match="stopped"):
        await (await producer.send(Outgoing("letters", b"x")))
    assert not producer.dead.done()
