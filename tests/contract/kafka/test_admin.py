"""Topic administration, on the real broker: what is created, what is changed, and what is refused."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from schemas.topics import LOOP_TOPICS, Topic, dead_letter_topic
from services.chassis.kafka.admin import Admin, Lag
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.reconciliation import TopicChange, TopicError
from services.chassis.kafka.types import (
    Commit,
    ConsumerSettings,
    KafkaError,
    Outgoing,
    ProducerDeadError,
    TopicPartition,
)
from tests.contract.kafka.conftest import Journal, collect

pytestmark = pytest.mark.kafka

LETTERS = Topic("letters", "bytes", "any", partitions=2)


@dataclass(frozen=True)
class Customised(Topic):
    """A topic as somebody else has set it up."""

    more: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        return {**super().settings, **self.more}


def letters_with(**settings: str) -> Topic:
    more = {name.replace("_", "."): value for name, value in settings.items()}
    return Customised("letters", "bytes", "any", partitions=2, more=more)


@pytest.fixture
async def admin(connection: Connection) -> AsyncIterator[Admin]:
    async with Admin(connection) as admin:
        yield admin


async def test_topics_are_created_as_listed_and_then_nothing_is_left_to_do(admin: Admin) -> None:
    topics = [*LOOP_TOPICS, dead_letter_topic(LOOP_TOPICS[0])]
    changes = await admin.reconcile(topics, replication_factor=1)
    assert [(change.topic, change.action) for change in changes] == [(topic.name, "create") for topic in topics]
    states = await admin.describe([topic.name for topic in topics])
    for topic in topics:
        assert states[topic.name].partitions == (topic.partitions or 12)
        assert topic.settings.items() <= states[topic.name].settings.items()
    assert await admin.reconcile(topics, replication_factor=1) == []


async def test_a_dry_run_tells_and_changes_nothing(admin: Admin) -> None:
    changes = await admin.reconcile([LETTERS], 1, dry_run=True)
    assert changes == [TopicChange("letters", "create", "2 partitions")]
    assert await admin.describe(["letters"]) == {}
    await admin.reconcile([LETTERS], 1)
    wider = await admin.reconcile([replace(LETTERS, partitions=5)], 1, dry_run=True)
    assert wider == [TopicChange("letters", "grow", "2 -> 5 partitions")]
    assert (await admin.describe(["letters"]))["letters"].partitions == 2


async def test_a_topic_grows_and_serves_its_new_partitions(admin: Admin, connection: Connection) -> None:
    await admin.reconcile([LETTERS], 1)
    await admin.reconcile([replace(LETTERS, partitions=4)], 1)
    producer = AioKafkaProducer(connection)
    await producer.start()
    try:
        assert (await producer.send_all([Outgoing("letters", b"x", partition=3)]))[0].offset == 0
        assert await producer.partitions("letters") == 4
    finally:
        await producer.stop()


async def test_a_wrong_setting_is_put_right_and_those_of_others_stay(admin: Admin) -> None:
    await admin.reconcile([letters_with(max_message_bytes="1000", segment_ms="777000")], 1)
    changes = await admin.reconcile([LETTERS], 1)
    assert changes == [TopicChange("letters", "set", "max.message.bytes: 1000 -> 1114112")]
    state = (await admin.describe(["letters"]))["letters"]
    assert state.settings["segment.ms"] == "777000"
    assert LETTERS.settings.items() <= state.settings.items()


@pytest.mark.parametrize("retention", [LETTERS.retention_ms * 2 if LETTERS.retention_ms else 0, -1])
async def test_a_longer_retention_is_kept_and_a_shorter_one_is_not(admin: Admin, retention: int) -> None:
    await admin.reconcile([letters_with(retention_ms=str(retention))], 1)
    assert await admin.reconcile([LETTERS], 1) == []
    short = replace(LETTERS, name="notes", retention_ms=1_000)
    await admin.reconcile([short], 1)
    changes = await admin.reconcile([replace(LETTERS, name="notes")], 1)
    assert [change.action for change in changes] == ["set"]


@pytest.mark.parametrize(
    ("was", "wanted", "why"),
    [
        (LETTERS, replace(LETTERS, partitions=1), "partitions cannot be removed"),
        (replace(LETTERS, keyed_by_run=True), replace(LETTERS, keyed_by_run=True, partitions=3), "keyed by run id"),
        (LETTERS, replace(LETTERS, compacted=True), "cleanup.policy=delete, it must be compact"),
    ],
    ids=["shrink", "keyed by run", "clean-up policy"],
)
async def test_what_would_lose_data_is_refused_before_anything_is_changed(
    admin: Admin, was: Topic, wanted: Topic, why: str
) -> None:
    await admin.reconcile([was], 1)
    with pytest.raises(TopicError, match=f"topic letters .*{why}"):
        await admin.reconcile([Topic("new", "bytes", "any"), wanted], 1)
    assert await admin.describe(["new"]) == {}
    assert (await admin.describe(["letters"]))["letters"].partitions == was.partitions


async def test_a_record_that_the_broker_refuses_is_the_end_of_the_producer(
    admin: Admin, connection: Connection
) -> None:
    await admin.reconcile([letters_with(max_message_bytes="1000")], 1)
    producer = AioKafkaProducer(connection)
    await producer.start()
    try:
        refused = await producer.send(Outgoing("letters", b"x" * 2_000, partition=0))
        abandoned = await producer.send(Outgoing("letters", b"x" * 2_000, partition=1))
        abandoned.cancel()
        for future in (refused, producer.dead):
            with pytest.raises(ProducerDeadError, match="MessageSizeTooLarge"):
                await future
        with pytest.raises(ProducerDeadError):
            await producer.send(Outgoing("letters", b"small", partition=0))
    finally:
        await producer.stop()


async def test_an_impossible_replication_names_the_topic(admin: Admin) -> None:
    with pytest.raises(KafkaError, match=r"topic .*letters: .*replication factor"):
        await admin.reconcile([LETTERS], replication_factor=2)


async def test_in_production_there_must_be_copies_of_everything_even_of_commits(
    admin: Admin, connection: Connection
) -> None:
    await admin.reconcile([LETTERS], 1)
    with pytest.raises(TopicError, match="topic letters has replication 1, 3 is asked for"):
        await admin.reconcile([Topic("new", "bytes", "any"), LETTERS], 3)
    with pytest.raises(TopicError, match=r"topic __consumer_offsets .* replication"):
        await admin.reconcile([], 3, dry_run=True)
    consumer = AioKafkaConsumer(connection, ConsumerSettings("readers", ("letters",)), Journal())
    await consumer.start()
    await consumer.stop()
    with pytest.raises(TopicError, match="topic __consumer_offsets has replication 1, 3 is asked for"):
        await admin.reconcile([], 3)
    assert await admin.describe(["new"]) == {}


async def test_settings_that_would_lose_records_are_put_right(admin: Admin) -> None:
    lossy = letters_with(
        message_timestamp_type="CreateTime",
        retention_ms="1000",
        retention_bytes="1000000",
        unclean_leader_election_enable="true",
    )
    await admin.reconcile([lossy], 1)
    changes = await admin.reconcile([LETTERS], 1)
    assert {change.detail for change in changes} == {
        "message.timestamp.type: CreateTime -> LogAppendTime",
        "retention.ms: 1000 -> 86400000",
        "retention.bytes: 1000000 -> -1",
        "unclean.leader.election.enable: true -> false",
    }


async def test_our_broker_makes_no_topic_unasked(admin: Admin) -> None:
    assert not await admin.creates_topics_unasked()


async def test_lag_is_told_for_every_partition_also_without_a_commit(admin: Admin, connection: Connection) -> None:
    await admin.reconcile([LETTERS], 1)
    first, second = TopicPartition("letters", 0), TopicPartition("letters", 1)
    producer = AioKafkaProducer(connection)
    consumer = AioKafkaConsumer(connection, ConsumerSettings("readers", ("letters",)), Journal())
    await producer.start()
    await producer.send_all([Outgoing("letters", b"x", partition=partition) for partition in (0, 0, 0, 1)])
    await consumer.start()
    try:
        assert await admin.lag("readers", ["letters", "absent"]) == {first: Lag(None, 3), second: Lag(None, 1)}
        await collect(consumer, 4)
        await consumer.commit({first: Commit(2)})
        assert await admin.lag("readers", ["letters"]) == {first: Lag(2, 3), second: Lag(None, 1)}
    finally:
        await consumer.stop()
        await producer.stop()


async def test_the_beginning_of_a_partition_is_deleted_and_nothing_else(admin: Admin, connection: Connection) -> None:
    await admin.reconcile([LETTERS], 1)
    producer = AioKafkaProducer(connection)
    await producer.start()
    await producer.send_all([Outgoing("letters", b"%d" % number, partition=number % 2) for number in range(6)])
    await producer.stop()
    await admin.delete_before({TopicPartition("letters", 1): 2})
    consumer = AioKafkaConsumer(connection, ConsumerSettings(None, ("letters",)), Journal())
    await consumer.start()
    try:
        left = await collect(consumer, 4)
        assert sorted(record.value or b"" for record in left) == [b"0", b"2", b"4", b"5"]
    finally:
        await consumer.stop()
    with pytest.raises(KafkaError, match="OffsetOutOfRange"):
        await admin.delete_before({TopicPartition("letters", 0): 4})


async def test_no_broker_is_one_clear_error() -> None:
    with pytest.raises(KafkaError, match=r"cannot reach Kafka at 127\.0\.0\.1:1"):
        await Admin(Connection("127.0.0.1:1")).start()
