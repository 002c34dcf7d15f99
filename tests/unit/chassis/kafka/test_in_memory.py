"""What only the in-memory broker does: faults, growth, and the same run from the same seed."""

import asyncio
import heapq
from collections.abc import Coroutine
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
