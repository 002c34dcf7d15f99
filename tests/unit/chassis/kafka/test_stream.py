"""The stream runtime, on the in-memory broker: what it commits, and what it never commits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from random import Random

import pytest

from services.chassis.kafka import stream as runtime
from services.chassis.kafka import supervision
from services.chassis.kafka.in_memory import Faults, InMemoryConsumer, InMemoryKafka, InMemoryProducer
from services.chassis.kafka.records import max_record_bytes
from services.chassis.kafka.stream import OversizedOutputError, Stream
from services.chassis.kafka.types import (
    Appended,
    Commit,
    Consumer,
    ConsumerSettings,
    KafkaError,
    Outgoing,
    ProducerDeadError,
    RebalanceListener,
    Record,
    TopicPartition,
)

SETTINGS = ConsumerSettings(group="joiners", topics=("in",), rebalance_timeout_s=5.0)
FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)


class Copy:
    """Copies each record to `out`; may wait or fail first."""

    def __init__(self) -> None:
        self.handled: list[Record] = []
        self.before: Callable[[Record], None] = lambda _: None
        self.open = asyncio.Event()
        self.open.set()
        self.busy = asyncio.Event()

    async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
        self.busy.set()
        await self.open.wait()
        for record in records:
            self.before(record)
        self.handled += records
        return [(record, [Outgoing("out", record.value, partition=record.partition)]) for record in records]


class Plane:
    """A broker with topics `in` and `out`, and the streams running on it."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.kafka = InMemoryKafka(clock=lambda: 0, faults=faults)
        self.kafka.create_topic("in", 2)
        self.kafka.create_topic("out", 2)
        self.producer = self.kafka.producer()
        self.running: list[tuple[Stream, asyncio.Task[None]]] = []

    def feed(self, count: int, partition: int = 0) -> None:
        for number in range(count):
            self.kafka.append(TopicPartition("in", partition), Outgoing("in", b"%d" % number))

    def stream(self, handler: runtime.BatchHandler, producer: InMemoryProducer | None = None) -> Stream:
        return Stream(self.member, producer or self.producer, handler, commit_interval_s=0.01)

    def member(self, listener: RebalanceListener) -> InMemoryConsumer:
        return self.kafka.consumer(SETTINGS, listener)

    def run(self, stream: Stream) -> "asyncio.Task[None]":
        task = asyncio.create_task(stream.run())
        self.running.append((stream, task))
        return task

    async def stop(self) -> None:
        for stream, task in self.running:
            await stream.stop()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def committed(self) -> dict[TopicPartition, Commit]:
        return self.kafka.group("joiners").commits

    def copied(self) -> list[tuple[int, bytes | None]]:
        return [(record.partition, record.value) for record in self.kafka.records("out")]


async def nothing(*_: object) -> None:
    """A hook that has nothing to do."""


class State:
    """A partition state whose hooks a test writes."""

    def __init__(
        self,
        on_assigned: Callable[[frozenset[TopicPartition], Consumer], Awaitable[None]] = nothing,
        on_revoked: Callable[[frozenset[TopicPartition]], Awaitable[None]] = nothing,
        metadata: Callable[[TopicPartition, int], str] = lambda *_: "",
    ) -> None:
        self._assigned = on_assigned
        self._revoked = on_revoked
        self._metadata = metadata
        self.told: list[Mapping[TopicPartition, Commit]] = []

    async def on_assigned(self, partitions: frozenset[TopicPartition], consumer: Consumer) -> None:
        await self._assigned(partitions, consumer)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._revoked(partitions)

    def metadata(self, tp: TopicPartition, offset: int) -> str:
        return self._metadata(tp, offset)

    def on_committed(self, commits: Mapping[TopicPartition, Commit]) -> None:
        self.told.append(commits)


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    plane = Plane()
    yield plane
    await plane.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition is the runtime's, it has no event for tests
            await asyncio.sleep(0.002)


def owned(stream: Stream) -> frozenset[TopicPartition]:
    """What the stream's consumer is assigned."""
    assert stream._session
    return stream._session.consumer.assignment()


async def settle() -> None:
    """Lets everything happen that can happen without time passing."""
    for _ in range(500):
        await asyncio.sleep(0)


class Unacknowledged(InMemoryProducer):
    """Appends, and acknowledges only what it is told to."""

    def __init__(self, broker: InMemoryKafka) -> None:
        super().__init__(broker)
        self.sent: list[asyncio.Future[Appended]] = []

    async def send(self, record: Outgoing) -> "asyncio.Future[Appended]":
        (await super().send(record)).result()
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.sent.append(future)
        return future

    def acknowledge(self, *numbers: int) -> None:
        for number in numbers or range(len(self.sent)):
            if not self.sent[number].done():
                self.sent[number].set_result(Appended(0, 0, 0))


async def test_every_record_is_handled_and_committed_once_its_output_is_in_the_log(plane: Plane) -> None:
    plane.feed(700, 0)
    plane.feed(30, 1)
    handler = Copy()
    plane.run(plane.stream(handler))
    await until(lambda: plane.committed.get(FIRST) == Commit(700) and plane.committed.get(SECOND) == Commit(30))
    assert len(handler.handled) == len(plane.copied()) == 730


async def test_a_group_without_a_commit_makes_one_at_once(plane: Plane) -> None:
    plane.run(plane.stream(Copy()))
    await until(lambda: plane.committed == {FIRST: Commit(0), SECOND: Commit(0)})


async def test_the_commit_stops_at_the_first_record_whose_output_is_not_acknowledged(plane: Plane) -> None:
    plane.feed(5)
    producer = Unacknowledged(plane.kafka)
    stream = plane.stream(Copy(), producer)
    plane.run(stream)
    await until(lambda: len(producer.sent) == 5)
    producer.acknowledge(0, 1, 3)
    await until(lambda: plane.committed[FIRST] == Commit(2))
    assert stream.unacknowledged == 2
    producer.acknowledge(2)
    await until(lambda: plane.committed[FIRST] == Commit(4))
    producer.acknowledge(4)
    await until(lambda: plane.committed[FIRST] == Commit(5))


async def test_a_record_whose_output_failed_is_never_passed(plane: Plane) -> None:
    plane.feed(3)
    producer = Unacknowledged(plane.kafka)
    plane.run(Stream(plane.member, producer, Copy(), commit_interval_s=0))
    await until(lambda: len(producer.sent) == 3)
    producer.sent[1].set_exception(KafkaError("outcome unknown"))
    producer.acknowledge(0, 2)
    await settle()
    assert plane.committed[FIRST] == Commit(1)


async def test_a_record_with_several_outputs_waits_for_all_of_them(plane: Plane) -> None:
    class Twice(Copy):
        async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
            return [(record, [*outgoing, *outgoing]) for record, outgoing in await super().handle(records)]

    plane.feed(1)
    producer = Unacknowledged(plane.kafka)
    plane.run(Stream(plane.member, producer, Twice(), commit_interval_s=0))
    await until(lambda: len(producer.sent) == 2)
    producer.acknowledge(1)
    await settle()
    assert plane.committed[FIRST] == Commit(0)
    producer.acknowledge(0)
    await until(lambda: plane.committed[FIRST] == Commit(1))


async def test_records_left_out_or_without_an_output_just_pass(plane: Plane) -> None:
    class Some(Copy):
        async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
            results = await super().handle(records)
            return [
                (record, () if record.offset % 2 else outgoing) for record, outgoing in results if record.offset % 3
            ]

    plane.feed(12)
    plane.run(plane.stream(Some()))
    await until(lambda: plane.committed.get(FIRST) == Commit(12))
    assert len(plane.copied()) == 4


async def test_too_much_unacknowledged_stops_the_polling_and_keeps_the_membership(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "POLL_S", 60.0)  # what goes on again does so for another reason than time
    plane.feed(50)
    producer = Unacknowledged(plane.kafka)
    stream = Stream(plane.member, producer, Copy(), max_batch=4, max_unacknowledged=10, commit_interval_s=0.01)
    plane.run(stream)
    await until(lambda: stream.unacknowledged == 10)
    await settle()
    assert len(producer.sent) == 10
    assert list(plane.kafka.group("joiners")._members) == ["member-000000"]
    producer.acknowledge()
    await until(lambda: len(producer.sent) > 10)
    assert stream.unacknowledged <= 10


async def test_a_dead_producer_ends_the_stream_and_nothing_passes_the_record(plane: Plane) -> None:
    producer = Unacknowledged(plane.kafka)
    task = plane.run(plane.stream(Copy(), producer))
    await until(lambda: FIRST in plane.committed)
    plane.feed(3)
    await until(lambda: len(producer.sent) == 3)
    producer.die("OutOfOrderSequenceNumber")
    with pytest.raises(ProducerDeadError, match="OutOfOrder"):
        await task
    assert plane.committed[FIRST] == Commit(0)


async def test_what_the_handler_raises_ends_the_stream_and_the_batch_is_delivered_again(plane: Plane) -> None:
    def fail(record: Record) -> None:
        if record.value == b"3":
            raise ZeroDivisionError("a bug")

    plane.feed(6)
    failing = Copy()
    failing.before = fail
    stream = Stream(plane.member, plane.producer, failing, max_batch=2, commit_interval_s=0.01)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await stream.run()
    assert not stream.progressing
    successor = Copy()
    plane.run(plane.stream(successor))
    await until(lambda: plane.committed.get(FIRST) == Commit(6))
    values = [record.value for record in successor.handled]
    assert values[-4:] == [b"2", b"3", b"4", b"5"]


async def test_a_stop_waits_for_acknowledgements_and_commits(plane: Plane) -> None:
    plane.feed(3)
    producer = Unacknowledged(plane.kafka)
    stream = Stream(plane.member, producer, Copy(), commit_interval_s=60)
    task = plane.run(stream)
    await until(lambda: len(producer.sent) == 3)
    stopping = asyncio.create_task(stream.stop())
    await settle()
    assert not stopping.done()
    producer.acknowledge()
    await stopping
    await task
    assert plane.committed[FIRST] == Commit(3)


async def test_a_stop_does_not_wait_for_ever(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "DRAIN_S", 0.05)
    plane.feed(3)
    producer = Unacknowledged(plane.kafka)
    stream = plane.stream(Copy(), producer)
    task = plane.run(stream)
    await until(lambda: len(producer.sent) == 3)
    producer.acknowledge(0)
    async with asyncio.timeout(2):
        await stream.stop()
        await task
    assert plane.committed[FIRST] == Commit(1)


async def test_a_stream_that_never_ran_or_has_ended_can_be_stopped(plane: Plane) -> None:
    stream = plane.stream(Copy())
    await stream.stop()
    await stream.run()
    await stream.stop()
    assert not stream.progressing


async def test_a_new_member_takes_over_what_is_not_committed_and_nothing_twice(plane: Plane) -> None:
    plane.feed(500, 0)
    plane.feed(500, 1)
    first, second = Copy(), Copy()
    plane.run(plane.stream(first))
    await until(lambda: len(first.handled) >= 500)
    newcomer = plane.stream(second)
    plane.run(newcomer)
    await until(lambda: newcomer.progressing)
    plane.feed(10, 0)
    plane.feed(10, 1)
    await until(lambda: plane.committed == {FIRST: Commit(510), SECOND: Commit(510)})
    assert second.handled
    assert len(first.handled) + len(second.handled) == 1_020


class Swallow(Copy):
    """Handles records from which nothing follows."""

    async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
        await super().handle(records)
        return ()


@pytest.mark.parametrize(("kind", "outputs"), [(Copy, 3), (Swallow, 0)])
async def test_a_revoke_waits_for_the_batch_in_hand_and_no_longer(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, kind: type[Copy], outputs: int
) -> None:
    monkeypatch.setattr(runtime, "DRAIN_S", 60.0)
    plane.feed(3)
    first, second = kind(), kind()
    first.open.clear()
    plane.run(plane.stream(first))
    await until(first.busy.is_set)
    newcomer = plane.stream(second)
    plane.run(newcomer)
    await settle()
    assert not newcomer.progressing
    first.open.set()
    await until(lambda: newcomer.progressing)
    assert plane.committed[FIRST] == Commit(3)
    assert len(plane.copied()) == outputs
    assert not second.handled


async def test_a_batch_that_outlives_its_assignment_has_no_effect(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "DRAIN_S", 0.02)
    plane.feed(3)
    first, second = Copy(), Copy()
    first.open.clear()
    stale = plane.stream(first)
    plane.run(stale)
    await until(first.busy.is_set)
    plane.run(plane.stream(second))
    await until(lambda: len(plane.committed) == 2 and len(owned(stale)) == 1)
    first.open.set()
    await until(lambda: plane.committed[FIRST] == Commit(3))
    assert len(plane.copied()) == 3


async def test_a_batch_that_outlives_its_assignment_is_cancelled_and_handled_anew(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "DRAIN_S", 0.02)
    journal: list[str] = []

    class Journalling(Copy):
        async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
            journal.append("begun")
            try:
                return await super().handle(records)
            except asyncio.CancelledError:
                journal.append("cancelled")
                raise

    async def note(event: str) -> None:
        journal.append(event)

    plane.feed(3, 0)
    plane.feed(3, 1)
    handler = Journalling()
    handler.open.clear()
    stream = Stream(
        plane.member,
        plane.producer,
        handler,
        commit_interval_s=0.01,
        state=State(lambda *_: note("assigned"), lambda _: note("revoked")),
    )
    plane.run(stream)
    await until(handler.busy.is_set)
    handler.busy.clear()
    plane.run(plane.stream(Copy()))
    await until(handler.busy.is_set)
    assert journal == ["assigned", "begun", "cancelled", "revoked", "assigned", "begun"]
    handler.open.set()
    await until(lambda: plane.committed == {FIRST: Commit(3), SECOND: Commit(3)})
    assert sorted(plane.copied()) == [(partition, b"%d" % number) for partition in (0, 1) for number in range(3)]


async def test_a_stop_cancels_a_batch_that_takes_too_long(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "DRAIN_S", 0.02)
    plane.feed(3)
    handler = Copy()
    handler.open.clear()
    stream = plane.stream(handler)
    task = plane.run(stream)
    await until(handler.busy.is_set)
    await stream.stop()
    await task
    handler.open.set()
    await settle()
    assert not handler.handled
    assert plane.committed[FIRST] == Commit(0)


async def test_a_handler_that_cancels_itself_ends_the_stream(plane: Plane) -> None:
    def cancel(_: Record) -> None:
        raise asyncio.CancelledError

    plane.feed(1)
    handler = Copy()
    handler.before = cancel
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(plane.run(plane.stream(handler)), 10)
    assert plane.committed[FIRST] == Commit(0)


async def test_an_output_that_fits_no_topic_ends_the_stream_at_once_and_is_not_passed(plane: Plane) -> None:
    class Boastful(Copy):
        async def handle(self, records: Sequence[Record]) -> Sequence[tuple[Record, Sequence[Outgoing]]]:
            return [(record, [Outgoing("out", b"x" * (max_record_bytes("out") + 1))]) for record in records]

    made: list[Consumer] = []

    def factory(listener: RebalanceListener) -> Consumer:
        made.append(plane.member(listener))
        return made[-1]

    plane.feed(1)
    with pytest.raises(OversizedOutputError, match="a record for out has"):
        await Stream(factory, plane.producer, Boastful()).run()
    assert len(made) == 1
    assert plane.committed[FIRST] == Commit(0)


async def test_hooks_run_before_the_first_record_and_after_the_last_commit(plane: Plane) -> None:
    plane.feed(4)
    told: list[tuple[str, int, dict[TopicPartition, Commit]]] = []
    handler = Copy()

    async def assigned(partitions: frozenset[TopicPartition], consumer: Consumer) -> None:
        assert await consumer.end_offsets(partitions) == {FIRST: 4, SECOND: 0}
        told.append(("assigned", len(handler.handled), dict(plane.committed)))

    async def revoked(_: frozenset[TopicPartition]) -> None:
        told.append(("revoked", len(handler.handled), dict(plane.committed)))

    state = State(assigned, revoked)
    stream = Stream(plane.member, plane.producer, handler, commit_interval_s=60, state=state)
    plane.run(stream)
    await until(lambda: len(handler.handled) == 4)
    stream_of_newcomer = plane.stream(Copy())
    plane.run(stream_of_newcomer)
    await until(lambda: len(told) >= 2)
    assert told[0] == ("assigned", 0, {FIRST: Commit(0), SECOND: Commit(0)})
    assert told[1] == ("revoked", 4, {FIRST: Commit(4), SECOND: Commit(0)})


async def test_the_hook_is_told_of_the_end_after_the_last_commit(plane: Plane) -> None:
    plane.feed(4)
    told: list[tuple[frozenset[TopicPartition], Commit]] = []
    handler = Copy()

    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        told.append((partitions, plane.committed[FIRST]))

    stream = Stream(plane.member, plane.producer, handler, commit_interval_s=60, state=State(on_revoked=revoked))
    task = plane.run(stream)
    await until(lambda: len(handler.handled) == 4)
    await stream.stop()
    await task
    assert told == [(frozenset({FIRST, SECOND}), Commit(4))]


async def test_what_a_hook_raises_ends_the_stream(plane: Plane) -> None:
    async def assigned(*_: object) -> None:
        raise LookupError("no snapshot")

    stream = Stream(plane.member, plane.producer, Copy(), state=State(assigned))
    with pytest.raises(LookupError, match="no snapshot"):
        await stream.run()


async def test_records_read_again_from_below_the_commit_never_take_it_back(plane: Plane) -> None:
    plane.feed(10)
    plane.kafka.group("joiners").commits[FIRST] = Commit(6, "kept")
    handler = Copy()
    commits: list[Commit] = []

    async def rewind(_: frozenset[TopicPartition], consumer: Consumer) -> None:
        consumer.seek(FIRST, 0)

    def note(tp: TopicPartition, offset: int) -> str:
        commits.append(Commit(offset))
        return f"{tp.partition}@{offset}"

    state = State(rewind, metadata=note)
    stream = Stream(plane.member, plane.producer, handler, max_batch=2, commit_interval_s=0, state=state)
    plane.run(stream)
    await until(lambda: plane.committed[FIRST].offset == 10)
    assert [record.offset for record in handler.handled] == list(range(10))
    assert plane.committed[FIRST] == Commit(10, "0@10")
    assert min(commit.offset for commit in commits if commit.offset) >= 6


async def test_what_the_owner_has_to_say_is_committed_where_the_offset_stands(plane: Plane) -> None:
    plane.feed(3)
    said = ["first"]
    state = State(metadata=lambda *_: said[-1])
    plane.run(Stream(plane.member, plane.producer, Copy(), commit_interval_s=0, state=state))
    await until(lambda: plane.committed.get(FIRST) == Commit(3, "first"))
    said.append("second")
    await until(lambda: plane.committed.get(FIRST) == Commit(3, "second"))
    await settle()
    assert [commits[FIRST] for commits in state.told if FIRST in commits][-1] == Commit(3, "second")
    count = len(state.told)
    await settle()
    assert len(state.told) == count, "nothing new to say, nothing committed"


async def test_nothing_is_committed_when_nothing_has_changed(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[object] = []
    original = InMemoryConsumer.commit

    async def count(self: InMemoryConsumer, offsets: dict[TopicPartition, Commit]) -> bool:
        commits.append(offsets)
        return await original(self, offsets)

    monkeypatch.setattr(InMemoryConsumer, "commit", count)
    plane.feed(2)
    plane.run(Stream(plane.member, plane.producer, Copy(), commit_interval_s=0))
    await until(lambda: plane.committed.get(FIRST) == Commit(2))
    made = len(commits)
    await settle()
    assert len(commits) == made == 2


async def test_a_member_without_a_partition_is_progressing(plane: Plane) -> None:
    streams = [plane.stream(Copy()) for _ in range(3)]
    for stream in streams:
        plane.run(stream)
    await until(lambda: all(stream.progressing for stream in streams))
    assert sorted(len(owned(stream)) for stream in streams) == [0, 1, 1]


async def test_a_stream_that_does_not_poll_any_more_is_not_progressing(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "READY_S", 0.2)
    handler = Copy()
    stream = plane.stream(handler)
    plane.run(stream)
    await until(lambda: stream.progressing)
    handler.open.clear()
    plane.feed(1)
    await until(lambda: not stream.progressing)
    handler.open.set()
    await until(lambda: stream.progressing)


class Stuck(InMemoryConsumer):
    """Alive, but its polls never return (`hang`), return nothing (`blind`) or fail."""

    fault = "hang"

    async def poll(self, *arguments: object, **options: object) -> Sequence[Record]:
        if self.fault == "fail":
            raise KafkaError("the client cannot mend this")
        await asyncio.sleep(3_600 if self.fault == "hang" else 0.01)
        return ()


@pytest.mark.parametrize("fault", ["hang", "blind", "fail"])
async def test_a_consumer_that_is_stuck_is_replaced(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    for name, seconds in (("WATCH_S", 0.02), ("POLL_STALL_S", 0.1), ("DELIVERY_STALL_S", 0.1), ("RESTART_S", 0.01)):
        monkeypatch.setattr(supervision, name, seconds)
    monkeypatch.setattr(Stuck, "fault", fault)
    plane.feed(5)
    made: list[Consumer] = []

    def factory(listener: RebalanceListener) -> Consumer:
        kind = InMemoryConsumer if made else Stuck
        made.append(kind(plane.kafka, SETTINGS, listener))
        return made[-1]

    lost: list[frozenset[TopicPartition]] = []

    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        lost.append(partitions)

    plane.run(Stream(factory, plane.producer, Copy(), commit_interval_s=0.01, state=State(on_revoked=revoked)))
    await until(lambda: plane.committed.get(FIRST) == Commit(5))
    assert len(made) == 2
    if fault != "fail":
        assert lost == [{FIRST, SECOND}]


async def test_an_idle_stream_is_not_taken_for_a_stuck_one(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("WATCH_S", 0.01), ("DELIVERY_STALL_S", 0.03)):
        monkeypatch.setattr(supervision, name, seconds)
    made: list[Consumer] = []
    looks: list[object] = []

    class Watched(InMemoryConsumer):
        async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            looks.append(partitions)
            return await super().end_offsets(partitions)

    def factory(listener: RebalanceListener) -> Consumer:
        made.append(Watched(plane.kafka, SETTINGS, listener))
        return made[-1]

    plane.run(Stream(factory, plane.producer, Copy()))
    await until(lambda: len(looks) > 20)
    assert len(made) == 1


async def test_a_consumer_that_always_fails_ends_the_stream(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART_S", 0.001)
    made: list[Consumer] = []

    class Refused(InMemoryConsumer):
        async def start(self) -> None:
            raise KafkaError("not authorised")

    def factory(listener: RebalanceListener) -> Consumer:
        made.append(Refused(plane.kafka, SETTINGS, listener))
        return made[-1]

    with pytest.raises(KafkaError, match="not authorised"):
        await Stream(factory, plane.producer, Copy()).run()
    assert len(made) == supervision.MAX_FAILURES


@pytest.mark.parametrize("seed", range(5))
async def test_a_storm_of_joins_leaves_and_crashes_loses_nothing(seed: int) -> None:
    """Whatever comes and goes, a record below the commit has its copy in the log."""
    random = Random(seed)
    plane = Plane(Faults(Random(seed), delay_s=0.01, lost_acknowledgements=0.1, retry_s=0.03))
    streams: list[tuple[Stream, asyncio.Task[None]]] = []
    fed = 0
    for _ in range(30):
        for _ in range(random.randrange(20)):
            plane.kafka.append(random.choice([FIRST, SECOND]), Outgoing("in", b"%d" % fed))
            fed += 1
        fate = random.random()
        if not streams or (fate < 0.4 and len(streams) < 4):
            stream = plane.stream(Copy(), plane.kafka.producer())
            streams.append((stream, asyncio.create_task(stream.run())))
        elif fate < 0.7:
            stream, task = streams.pop(random.randrange(len(streams)))
            task.cancel() if random.random() < 0.5 else await stream.stop()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(random.random() * 0.01)
        check_nothing_is_passed(plane)
    stream = plane.stream(Copy())
    plane.run(stream)
    await until(lambda: all(plane.committed.get(tp) == Commit(len(plane.kafka.log(tp))) for tp in (FIRST, SECOND)))
    check_nothing_is_passed(plane)
    assert {value for _, value in plane.copied()} == {b"%d" % number for number in range(fed)}
    for running, task in streams:
        await running.stop()
        await task
    await plane.stop()


def check_nothing_is_passed(plane: Plane) -> None:
    copied = {value for _, value in plane.copied()}
    for tp, commit in plane.committed.items():
        passed = {record.value for record in plane.kafka.log(tp)[: commit.offset]}
        assert passed <= copied


async def test_cancelling_a_stream_leaves_the_group(plane: Plane) -> None:
    first = plane.stream(Copy())
    task = asyncio.create_task(first.run())
    await until(lambda: first.progressing)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    second = plane.stream(Copy())
    plane.run(second)
    await until(lambda: second.progressing and len(owned(second)) == 2)
