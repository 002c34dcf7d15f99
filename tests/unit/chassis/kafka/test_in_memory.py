"""What only the in-memory broker does: faults, growth, and the same run from the same seed."""

import asyncio
import heapq
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from itertools import count
from random import Random
from typing import TypeVar

import pytest

from services.chassis.kafka.in_memory import Faults, InMemoryKafka
from services.chassis.kafka.types import (
    Appended,
    Commit,
    ConsumerSettings,
    KafkaError,
    Outgoing,
    ProducerDeadError,
    TopicPartition,
)

T = TypeVar("T")
MEMBER = ConsumerSettings("readers", ("letters",))
PLACE: ContextVar[str] = ContextVar("place", default="nowhere")


class VirtualTime:
    """Time passes when nothing else can happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), future))
        await future

    async def run(self, work: Coroutine[None, None, T]) -> T:
        """Runs `work` to its end."""
        task = asyncio.create_task(work)
        while not task.done():
            for _ in range(50):
                await asyncio.sleep(0)
            if not task.done():
                self._advance()
        return task.result()

    def _advance(self) -> None:
        assert self._sleepers, "nothing will ever happen"
        self.now, _, future = heapq.heappop(self._sleepers)
        if not future.done():
            future.set_result(None)


class Quiet:
    """A listener that does nothing."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None: ...

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None: ...


class Frozen(Quiet):
    """A listener that gives nothing up for long."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._time.sleep(3_600.0)


class Told(Quiet):
    """A listener that writes down what it was told, where and when."""

    def __init__(self, time: VirtualTime) -> None:
        self.heard: list[tuple[str, str, float]] = []
        self._time = time

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.heard.append(("assigned", PLACE.get(), self._time.now))

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.heard.append(("revoked", PLACE.get(), self._time.now))


def broker(time: VirtualTime, faults: Faults | None = None) -> InMemoryKafka:
    kafka = InMemoryKafka(clock=lambda: int(time.now * 1_000), sleep=time.sleep, faults=faults)
    kafka.create_topic("letters", 3)
    return kafka


async def write(kafka: InMemoryKafka, records: int = 60) -> list[Appended]:
    producer = kafka.producer()
    futures = [await producer.send(Outgoing("letters", b"%d" % n, partition=n % 3)) for n in range(records)]
    return await asyncio.gather(*futures)


def arrivals(kafka: InMemoryKafka) -> list[tuple[int, int, bytes | None]]:
    records = [(record.timestamp, record.partition, record.value) for record in kafka.records("letters")]
    return sorted(records, key=lambda record: record[0])


async def test_without_faults_a_record_is_in_the_log_at_once() -> None:
    kafka = broker(VirtualTime())
    future = await kafka.producer().send(Outgoing("letters", b"x", partition=1))
    assert future.result() == Appended(1, 0, 0)
    assert [record.value for record in kafka.records("letters")] == [b"x"]


async def test_delays_reorder_partitions_and_never_the_records_of_one() -> None:
    time = VirtualTime()
    kafka = broker(time, Faults(Random(1), delay_s=2.0))
    await time.run(write(kafka))
    order = [int(value or b"") for _, _, value in arrivals(kafka)]
    assert order != sorted(order)
    for partition in range(3):
        values = [int(r.value or b"") for r in kafka.log(TopicPartition("letters", partition))]
        assert values == sorted(values)


async def test_the_same_seed_gives_the_same_log() -> None:
    logs = []
    for seed in (5, 5, 6):
        time = VirtualTime()
        kafka = broker(time, Faults(Random(seed), delay_s=1.0, lost_acknowledgements=0.3))
        await time.run(write(kafka))
        logs.append(arrivals(kafka))
    assert logs[0] == logs[1] != logs[2]


async def test_a_lost_acknowledgement_comes_late_and_the_record_once() -> None:
    time = VirtualTime()
    kafka = broker(time, Faults(Random(1), lost_acknowledgements=1.0, retry_s=7.0))
    sent = await kafka.producer().send(Outgoing("letters", b"x", partition=0))

    async def appended() -> None:
        while not kafka.records("letters"):
            await time.sleep(0.1)

    await time.run(appended())
    assert not sent.done()
    assert await time.run(asyncio.wait_for(sent, None)) == Appended(0, 0, 0)
    assert time.now >= 7.0
    assert len(kafka.records("letters")) == 1


async def test_a_producer_that_stops_leaves_the_outcome_of_what_is_under_way_unknown() -> None:
    time = VirtualTime()
    kafka = broker(time, Faults(Random(1), delay_s=5.0))
    producer = kafka.producer()
    sent = await producer.send(Outgoing("letters", b"x"))
    await producer.stop()
    with pytest.raises(KafkaError, match="unknown"):
        await sent
    with pytest.raises(KafkaError, match="stopped"):
        await producer.send(Outgoing("letters", b"y"))


async def test_a_dead_producer_fails_everything_and_says_so() -> None:
    time = VirtualTime()
    producer = broker(time, Faults(Random(1), delay_s=5.0)).producer()
    sent = await producer.send(Outgoing("letters", b"x"))
    producer.die("refused")
    for future in (sent, producer.dead):
        with pytest.raises(ProducerDeadError, match="refused"):
            await future
    with pytest.raises(ProducerDeadError):
        await producer.send(Outgoing("letters", b"y"))


@pytest.mark.parametrize("topic", ["absent", "letters"])
async def test_what_does_not_exist_is_an_error(topic: str) -> None:
    with pytest.raises(KafkaError, match=topic):
        await broker(VirtualTime()).producer().send(Outgoing(topic, b"x", partition=9))


async def test_a_topic_that_grows_is_shared_anew() -> None:
    time = VirtualTime()
    kafka = broker(time)
    consumer = kafka.consumer(ConsumerSettings("readers", ("letters",)), Quiet())
    await time.run(consumer.start())
    kafka.create_topic("letters", 5)
    kafka.append(TopicPartition("letters", 4), Outgoing("letters", b"new"))
    records = await time.run(consumer.poll(None, max_records=10, timeout_s=60.0))
    assert [record.partition for record in records] == [4]
    assert time.now < 60.0


async def test_a_commit_of_an_older_generation_is_refused() -> None:
    time = VirtualTime()
    kafka = broker(time)
    consumer = kafka.consumer(ConsumerSettings("readers", ("letters",)), Quiet())
    await time.run(consumer.start())
    group, tp = kafka.group("readers"), TopicPartition("letters", 0)
    assert not group.commit(consumer.member_id, group.generation - 1, {tp: Commit(1)})
    assert not group.commit("stranger", group.generation, {tp: Commit(1)})
    assert group.commits == {}
    assert group.commit(consumer.member_id, group.generation, {tp: Commit(1)})


async def test_every_partition_has_its_turn() -> None:
    time = VirtualTime()
    kafka = broker(time)
    await write(kafka, 300)
    consumer = kafka.consumer(ConsumerSettings("readers", ("letters",)), Quiet())
    await time.run(consumer.start())
    first = [(await time.run(consumer.poll(None, max_records=10, timeout_s=1.0)))[0].partition for _ in range(3)]
    assert sorted(first) == [0, 1, 2]


async def test_a_poll_in_virtual_time_takes_its_time_out_and_no_real_time() -> None:
    time = VirtualTime()
    kafka = broker(time)
    consumer = kafka.consumer(ConsumerSettings("readers", ("letters",)), Quiet())
    await time.run(consumer.start())
    assert not await time.run(consumer.poll(None, max_records=10, timeout_s=3_600.0))
    assert time.now == 3_600.0


async def test_a_member_that_went_silent_is_out_of_its_group_and_joins_again_when_it_hears() -> None:
    time = VirtualTime()
    kafka = broker(time, Faults(Random(1), heartbeat_s=2.0))
    told = Told(time)
    silent, other = kafka.consumer(MEMBER, told), kafka.consumer(MEMBER, Quiet())
    await time.run(silent.start())
    await time.run(other.start())
    await time.run(time.sleep(10.0))
    held = min(silent.assignment())
    before = len(told.heard)
    silent.expel()
    assert not await silent.commit({held: Commit(1)})
    await time.run(time.sleep(10.0))
    told_since = [what for what, _, _ in told.heard[before:]]
    assert (told_since[0], told_since[-1]) == ("revoked", "assigned")
    assert silent.assignment() | other.assignment() == {TopicPartition("letters", n) for n in range(3)}
    assert silent.assignment()
    assert await silent.commit({min(silent.assignment()): Commit(1)})


async def test_an_expelled_member_goes_on_with_what_it_had_until_it_hears_of_it() -> None:
    time = VirtualTime()
    kafka = broker(time, Faults(Random(3), heartbeat_s=5.0))
    told = Told(time)
    silent = kafka.consumer(MEMBER, told)
    await time.run(silent.start())
    await time.run(write(kafka, 3))
    silent.expel()
    assert len(await time.run(silent.poll(None, max_records=10, timeout_s=1.0))) >= 1
    assert [what for what, _, _ in told.heard] == ["assigned"]
    await time.run(time.sleep(15.0))
    assert [what for what, _, _ in told.heard[1:]] == ["revoked", "assigned"]


async def test_a_rebalance_does_not_wait_for_a_member_that_is_out() -> None:
    time = VirtualTime()
    kafka = broker(time)
    silent, other = kafka.consumer(MEMBER, Frozen(time)), kafka.consumer(MEMBER, Quiet())
    await time.run(silent.start())
    joining = asyncio.create_task(other.start())
    await time.run(time.sleep(1.0))
    assert not joining.done()
    silent.expel()
    await time.run(asyncio.wait_for(joining, None))
    assert time.now == 1.0


async def test_each_part_works_in_the_context_it_was_made_in() -> None:
    time = VirtualTime()
    places: list[str] = []

    async def sleep(seconds: float) -> None:
        places.append(PLACE.get())
        await time.sleep(seconds)

    kafka = InMemoryKafka(lambda: 0, sleep, Faults(Random(1), delay_s=1.0))
    kafka.create_topic("letters", 3)
    told = Told(time)
    token = PLACE.set("member")
    consumer = kafka.consumer(MEMBER, told)
    PLACE.set("writer")
    producer = kafka.producer()
    PLACE.reset(token)
    await time.run(consumer.start())
    sent = await producer.send(Outgoing("letters", b"x"))
    await time.run(asyncio.wait_for(sent, None))
    assert "writer" in places
    assert {place for _, place, _ in told.heard} == {"member"}


async def test_every_commit_that_is_taken_is_heard_of() -> None:
    time = VirtualTime()
    kafka = broker(time)
    heard: list[tuple[str, Mapping[TopicPartition, Commit]]] = []
    kafka.on_commit = lambda group, commits: heard.append((group, commits))
    consumer = kafka.consumer(MEMBER, Quiet())
    await time.run(consumer.start())
    commits = {TopicPartition("letters", 0): Commit(1)}
    assert await consumer.commit(commits)
    consumer.expel()
    assert not await consumer.commit({TopicPartition("letters", 0): Commit(2)})
    assert heard == [("readers", commits)]


async def test_records_take_their_time_to_a_reader() -> None:
    time = VirtualTime()
    kafka = broker(time, Faults(Random(1), fetch_s=4.0))
    consumer = kafka.consumer(MEMBER, Quiet())
    await time.run(consumer.start())
    kafka.append(TopicPartition("letters", 0), Outgoing("letters", b"x"))
    assert await time.run(consumer.poll(None, max_records=10, timeout_s=0.0))
    assert 0 < time.now <= 4.0
