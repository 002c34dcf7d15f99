"""Groups: who owns what, who may commit, and where a new owner begins."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from services.chassis.kafka.types import Commit, Consumer, ConsumerSettings, KafkaError, Outgoing, TopicPartition
from tests.contract.kafka.conftest import Broker, Journal, collect, turn, until

MEMBER = ConsumerSettings(group="workers", topics=("letters",))
FIRST, SECOND = TopicPartition("letters", 0), TopicPartition("letters", 1)


async def fill(broker: Broker, each: int, partitions: int = 2) -> None:
    await broker.create_topic("letters", partitions)
    producer = await broker.producer()
    await producer.send_all(
        [Outgoing("letters", b"%d" % n, partition=p) for n in range(each) for p in range(partitions)]
    )


def settled(partitions: int, *members: Consumer) -> bool:
    """Whether the members own all partitions, each once, and none is without."""
    owned = [member.assignment() for member in members]
    return (
        all(owned)
        and sorted(tp for share in owned for tp in share) == sorted(frozenset().union(*owned))
        and (sum(map(len, owned)) == partitions)
    )


async def test_a_commit_is_found_again_with_its_metadata(broker: Broker) -> None:
    await fill(broker, each=5)
    consumer = await broker.consumer(MEMBER)
    await collect(consumer, 10)
    assert await consumer.committed([FIRST, SECOND]) == {}
    assert await consumer.commit({FIRST: Commit(3, '{"s": 3, "where": "Köln"}')})
    assert await consumer.committed([FIRST, SECOND]) == {FIRST: Commit(3, '{"s": 3, "where": "Köln"}')}
    assert await consumer.commit({FIRST: Commit(4), SECOND: Commit(5)})
    assert await consumer.committed([FIRST, SECOND]) == {FIRST: Commit(4), SECOND: Commit(5)}


async def test_the_longest_metadata_passes_and_a_longer_one_is_refused(broker: Broker) -> None:
    await fill(broker, each=1)
    consumer = await broker.consumer(MEMBER)
    await collect(consumer, 2)
    assert await consumer.commit({FIRST: Commit(1, "x" * 4_096)})
    with pytest.raises(ValueError, match="4096"):
        await consumer.commit({FIRST: Commit(1, "ü" * 2_049)})


async def test_a_new_owner_begins_at_the_commit_or_else_at_the_beginning(broker: Broker) -> None:
    await fill(broker, each=5)
    first = await broker.consumer(MEMBER)
    await collect(first, 10)
    assert await first.commit({FIRST: Commit(3)})
    await first.stop()
    second = await broker.consumer(MEMBER)
    records = await collect(second, 7)
    assert sorted((record.partition, record.offset) for record in records) == [(0, 3), (0, 4)] + [
        (1, n) for n in range(5)
    ]


async def test_only_owned_partitions_can_be_committed(broker: Broker) -> None:
    await fill(broker, each=1)
    consumer = await broker.consumer(MEMBER)
    await collect(consumer, 2)
    assert not await consumer.commit({TopicPartition("letters", 7): Commit(1)})
    assert await consumer.commit({})


async def test_a_reader_outside_any_group_cannot_commit(broker: Broker) -> None:
    await fill(broker, each=1)
    reader = await broker.consumer(ConsumerSettings(group=None, topics=("letters",)))
    with pytest.raises(KafkaError):
        await reader.commit({FIRST: Commit(1)})


async def test_members_are_told_before_partitions_go_and_after_they_come(broker: Broker) -> None:
    await fill(broker, each=1)
    journal, other = Journal(), Journal()
    first = await broker.consumer(MEMBER, journal)
    await until(lambda: len(journal.events) == 1, first)
    second = await broker.consumer(MEMBER, other)
    await until(lambda: settled(2, first, second), first, second)
    await until(lambda: len(journal.events) == 3 and len(other.events) == 1, first, second)
    assert journal.events == [
        ("assigned", frozenset({FIRST, SECOND})),
        ("revoked", frozenset({FIRST, SECOND})),
        ("assigned", first.assignment()),
    ]
    assert other.events == [("assigned", second.assignment())]


async def test_partitions_do_not_go_before_the_listener_has_been_told_that_they_came(broker: Broker) -> None:
    await fill(broker, each=1)
    journal, release = Journal(), asyncio.Event()

    async def dawdle(_: frozenset[TopicPartition]) -> None:
        await release.wait()

    journal.assigning = dawdle
    first = await broker.consumer(MEMBER, journal)
    joining = asyncio.create_task(broker.consumer(MEMBER))
    for _ in range(10):
        await turn(first)
    assert journal.events == []
    journal.assigning = None
    release.set()
    second = await joining
    await until(lambda: settled(2, first, second), first, second)
    await until(lambda: len(journal.events) == 3, first, second)
    assert [event for event, _ in journal.events] == ["assigned", "revoked", "assigned"]


async def test_a_member_that_leaves_is_not_told_and_the_others_take_over(broker: Broker) -> None:
    await fill(broker, each=1)
    journal = Journal()
    first, second = await broker.consumer(MEMBER, journal), await broker.consumer(MEMBER)
    await until(lambda: settled(2, first, second), first, second)
    told = len(journal.events)
    await first.stop()
    await until(lambda: settled(2, second), second)
    assert len(journal.events) == told


async def test_a_member_without_a_partition_is_told_so(broker: Broker) -> None:
    await fill(broker, each=1, partitions=1)
    journals = [Journal(), Journal()]
    members = [await broker.consumer(MEMBER, journal) for journal in journals]
    await until(lambda: sum(len(member.assignment()) for member in members) == 1, *members)
    idle = 0 if not members[0].assignment() else 1
    await until(lambda: ("assigned", frozenset()) in journals[idle].events, *members)
    assert not await members[idle].poll(None, max_records=10, timeout_s=0.05)


async def test_what_is_committed_while_partitions_go_is_where_the_next_owner_begins(broker: Broker) -> None:
    await fill(broker, each=20, partitions=4)
    journal = Journal()
    first = await broker.consumer(MEMBER, journal)
    seen = [(record.partition, record.offset) for record in await collect(first, 37)]
    commits: list[bool] = []

    async def commit(partitions: frozenset[TopicPartition]) -> None:
        ends = {tp: Commit(max((o + 1 for p, o in seen if p == tp.partition), default=0)) for tp in partitions}
        commits.append(await first.commit(ends))

    journal.revoking = commit
    second = await broker.consumer(MEMBER)
    await until(lambda: settled(4, first, second), first, second)
    assert commits == [True]
    async with asyncio.timeout(20):
        while len(seen) < 80:
            for member in (first, second):
                polled = await member.poll(None, max_records=10, timeout_s=0.05)
                seen += [(record.partition, record.offset) for record in polled]
    assert sorted(seen) == [(p, n) for p in range(4) for n in range(20)]


async def test_nothing_is_polled_while_partitions_come_and_the_listener_may_seek(broker: Broker) -> None:
    await fill(broker, each=10)
    journal, listening = Journal(), asyncio.Event()
    made: list[Consumer] = []

    async def seek(partitions: frozenset[TopicPartition]) -> None:
        listening.set()
        await release.wait()
        for tp in partitions:
            made[0].seek(tp, 8)

    release = asyncio.Event()
    journal.assigning = seek
    starting = asyncio.create_task(broker.consumer(MEMBER, journal))
    await asyncio.wait_for(listening.wait(), 20)
    made.append(await starting)
    for _ in range(3):
        assert not await made[0].poll(None, max_records=10, timeout_s=0.1)
    release.set()
    records = await collect(made[0], 4)
    assert sorted((record.partition, record.offset) for record in records) == [(0, 8), (0, 9), (1, 8), (1, 9)]


async def test_a_member_that_was_too_slow_to_give_up_is_fenced_and_joins_again(broker: Broker) -> None:
    await fill(broker, each=5)
    # A member learns of a rebalance by its heartbeat, and must have time left to join.
    patient = replace(MEMBER, rebalance_timeout_s=1.0, heartbeat_s=0.2)
    journal, release = Journal(), asyncio.Event()
    slow = await broker.consumer(patient, journal)
    await collect(slow, 10)
    stale = slow.assignment()
    late: list[bool] = []

    async def dawdle(partitions: frozenset[TopicPartition]) -> None:
        await release.wait()
        late.append(await slow.commit({tp: Commit(1, "zombie") for tp in partitions}))

    journal.revoking = dawdle
    successor = await broker.consumer(patient)
    await until(lambda: settled(2, successor), successor)
    assert await successor.commit({tp: Commit(5, "heir") for tp in stale})
    release.set()
    await until(lambda: settled(2, slow, successor), slow, successor)
    assert late == [False]
    assert await successor.committed(stale) == dict.fromkeys(stale, Commit(5, "heir"))


async def test_what_a_listener_raises_is_raised_by_the_next_poll(broker: Broker) -> None:
    await fill(broker, each=1)
    journal = Journal()

    async def fail(_: frozenset[TopicPartition]) -> None:
        raise LookupError("no snapshot")

    journal.assigning = fail
    consumer = await broker.consumer(MEMBER, journal)
    with pytest.raises(LookupError, match="no snapshot"):
        await until(lambda: False, consumer)


async def test_every_member_gets_its_share_of_each_lane(broker: Broker) -> None:
    lanes = ((0, 1, 2, 3), (4, 5), (6, 7))
    await fill(broker, each=1, partitions=9)
    member = ConsumerSettings(group="workers", topics=("letters",), lanes={"letters": lanes})
    members = [await broker.consumer(member) for _ in range(2)]
    await until(lambda: settled(9, *members), *members)
    for lane in lanes:
        shares = [sum(tp.partition in lane for tp in member.assignment()) for member in members]
        assert shares == [len(lane) // 2] * 2


async def test_offsets_of_one_partition_never_go_back_without_a_rebalance(broker: Broker) -> None:
    await fill(broker, each=200)
    consumer = await broker.consumer(MEMBER)
    records = await collect(consumer, 400)
    for partition in (0, 1):
        offsets = [record.offset for record in records if record.partition == partition]
        assert all(before < after for before, after in pairwise(offsets))
