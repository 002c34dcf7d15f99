"""A partition changes hands: what the next owner begins with, what it says, and what the last one may still do."""

import asyncio
from collections.abc import Mapping

import pytest

from schemas.base import Output
from schemas.events import Event, StepCompleted
from schemas.topics import EVENTS
from services.aggregator import snapshots as snapshots_module
from services.aggregator.actions import Actions
from services.aggregator.domain.state import PackedRun, Run
from services.aggregator.handlers import Join
from services.aggregator.snapshots import Snapshots
from services.chassis.blobs import InMemoryBlobStore, Outputs
from services.chassis.clock import LogClock
from services.chassis.kafka.in_memory import InMemoryConsumer, InMemoryKafka
from services.chassis.kafka.messages import encode
from services.chassis.kafka.types import Commit, ConsumerSettings, Outgoing, Record, TopicPartition
from services.chassis.metrics import Metrics
from tests.unit.aggregator.log import DIAMOND, T0, WINDOW_MS, graph, model, started
from tests.unit.aggregator.test_join import FakeRequests, FakeStopper, types

TP = TopicPartition(EVENTS, 0)
ONE = graph(model("a")).model_copy(update={"output": {"x": "${steps.a}"}, "output_reads": ("a",)})


class Partition:
    """The events topic's only partition, its commit, its blobs, and the events that went into it."""

    def __init__(self) -> None:
        self.now = T0
        self.kafka = InMemoryKafka(lambda: self.now)
        self.kafka.create_topic(EVENTS, 1)
        self.blobs = InMemoryBlobStore()
        self.commit: Commit | None = None

    def append(self, *events: Event) -> list[Record]:
        """Appends them a millisecond apart; the records as they stand in the log."""
        for event in events:
            self.now += 1
            self.kafka.append(TP, Outgoing(EVENTS, encode(event), event.run_id.encode()))
        return self.kafka.log(TP)[-len(events) :]

    @property
    def end(self) -> int:
        return len(self.kafka.log(TP))


class Owner:
    """One aggregator: it is assigned the partition, folds from where it sought, and may be asked to commit."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.monotonic_s = 0.0
        clock, producer = LogClock(), partition.kafka.producer()
        actions = Actions(
            clock=clock, producer=producer, outputs=Outputs(partition.blobs), requests=FakeRequests(),
            stopper=FakeStopper(), metrics=Metrics(),
        )  # fmt: skip
        snapshots = Snapshots(partition.blobs, WINDOW_MS, lambda: self.monotonic_s)
        self.snapshots = snapshots
        self.join = Join(actions, window_ms=WINDOW_MS, clock=clock, producer=producer, snapshots=snapshots)
        self.sought = -1

    async def take(self) -> None:
        """Is assigned the partition, at its commit."""
        consumer = _Seekable(self)
        await consumer.start()
        await self.join.on_assigned(frozenset((TP,)), consumer)
        await consumer.stop()

    async def fold(self) -> list[Outgoing]:
        """Everything from its position to the end of the log: what it has to say about it."""
        records = self.partition.kafka.log(TP)[self.join.owned[0].position :]
        return [out for _, outgoing in await self.join.handle(records) for out in outgoing]

    async def snapshot(self) -> None:
        """Long enough has passed for one, if there is anything new."""
        self.monotonic_s += 100.0
        await self.join.snapshot()

    async def commit(self, offset: int) -> None:
        """A commit passes `offset`, as the stream makes it."""
        self.partition.commit = Commit(offset, self.join.metadata(TP, offset))
        self.join.on_committed({TP: self.partition.commit})
        await self.snapshots.delete_unneeded()

    async def lose(self) -> None:
        """Its partition is revoked."""
        await self.join.on_revoked(frozenset((TP,)))

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """The consumer is only asked for offsets."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """The consumer is only asked for offsets."""


class _Seekable(InMemoryConsumer):
    def __init__(self, owner: Owner) -> None:
        super().__init__(owner.partition.kafka, ConsumerSettings(group=None, topics=(EVENTS,)), owner)
        self._owner = owner

    async def committed(self, partitions: object) -> Mapping[TopicPartition, Commit]:
        commit = self._owner.partition.commit
        return {} if commit is None else {TP: commit}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._owner.sought = offset


@pytest.fixture
def partition() -> Partition:
    return Partition()


async def owner_of(partition: Partition) -> Owner:
    owner = Owner(partition)
    await owner.take()
    return owner


def completed(step: str, request_id: str = "r1") -> Event:
    run_id = started(DIAMOND, request_id).run_id
    return StepCompleted(run_id=run_id, tenant="acme", step=step, attempt=1, output=Output(value=step))


async def snapshotted(partition: Partition, *events: Event) -> Owner:
    """An owner that has folded these, and whose commit behind them names a snapshot of just that."""
    owner = await owner_of(partition)
    partition.append(*events)
    await owner.fold()
    await owner.snapshot()
    await owner.commit(partition.end)
    return owner


async def test_the_next_owner_goes_on_from_the_snapshot_that_the_commit_names(partition: Partition) -> None:
    await snapshotted(partition, started(DIAMOND), completed("a"))
    second = await owner_of(partition)
    assert second.sought == 2, "nothing before the snapshot is read again"
    assert second.join.open_runs() == {0: 1}
    partition.append(completed("b"))
    assert types(await second.fold()) == ["StepReady"]


async def test_between_the_snapshot_and_the_commit_it_folds_in_silence(partition: Partition) -> None:
    first = await owner_of(partition)
    partition.append(started(DIAMOND))
    await first.fold()
    await first.snapshot()
    partition.append(completed("a"), completed("b"))
    await first.fold()
    await first.commit(2)
    second = await owner_of(partition)
    assert second.sought == 1
    assert types(await second.fold()) == ["StepReady"], "b was folded, but not acted upon, before"
    partition.append(completed("c"))
    assert types(await second.fold()) == ["run-finished"]


async def test_a_snapshot_beyond_the_commit_is_not_named(partition: Partition) -> None:
    """It holds records whose decisions nobody may ever have carried out."""
    first = await owner_of(partition)
    partition.append(started(DIAMOND))
    await first.fold()
    await first.snapshot()
    partition.append(completed("a"), completed("b"))
    await first.fold()
    await first.snapshot()
    await first.commit(2)
    second = await owner_of(partition)
    assert second.sought == 1
    assert types(await second.fold()) == ["StepReady"]


async def test_snapshots_are_deleted_once_a_commit_names_the_second_after_them(partition: Partition) -> None:
    """The one before the named is kept: an older commit may still be on its way, and name it."""
    owner = await owner_of(partition)
    for offset in (1, 2, 3, 4):
        partition.append(started(DIAMOND, request_id=f"r{offset}"))
        await owner.fold()
        await owner.snapshot()
    assert len(partition.blobs.blobs) == 4
    await owner.commit(3)
    assert len(partition.blobs.blobs) == 3
    await owner.commit(4)
    assert len(partition.blobs.blobs) == 2
    assert (await owner_of(partition)).sought == 4


async def test_a_snapshot_that_could_not_be_reached_is_named_until_there_is_a_later_one(partition: Partition) -> None:
    await snapshotted(partition, started(DIAMOND), completed("a"))
    partition.blobs.unavailable = True
    second = await owner_of(partition)
    partition.blobs.unavailable = False
    await second.join.handle(partition.kafka.log(TP)[:1])
    await second.snapshot()
    await second.commit(2)
    assert (await owner_of(partition)).sought == 2, "on its way through the log the second one wrote none before it"
    partition.append(completed("b"))
    await second.fold()
    await second.snapshot()
    await second.commit(3)
    assert (await owner_of(partition)).sought == 3


async def test_a_store_that_hangs_costs_no_more_than_a_part_of_the_session(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    await snapshotted(partition, started(DIAMOND))

    async def hang(_: object) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(partition.blobs, "get", hang)
    monkeypatch.setattr(snapshots_module, "LOAD_TIMEOUT_S", 0.01)
    assert (await owner_of(partition)).sought == 0


async def test_a_log_that_lost_its_end_is_acted_upon_again_from_there(partition: Partition) -> None:
    first = await owner_of(partition)
    partition.append(started(DIAMOND), completed("a"), completed("b"))
    await first.fold()
    await first.commit(3)
    del partition.kafka.log(TP)[2:]
    second = await owner_of(partition)
    partition.append(completed("b"))
    assert types(await second.fold()) == ["StepReady"]


async def test_a_commit_that_names_none_deletes_none(partition: Partition) -> None:
    owner = await owner_of(partition)
    partition.append(started(DIAMOND))
    await owner.fold()
    await owner.snapshot()
    await owner.commit(0)
    assert partition.commit == Commit(0, "")
    assert len(partition.blobs.blobs) == 1


@pytest.mark.parametrize("how", ["gone", "damaged", "away", "of another partition", "not JSON"])
async def test_a_snapshot_that_cannot_be_had_costs_time_and_nothing_else(partition: Partition, how: str) -> None:
    await snapshotted(partition, started(DIAMOND), completed("a"))
    assert partition.commit
    (digest,) = partition.blobs.blobs
    if how == "gone":
        partition.blobs.blobs.clear()
    elif how == "damaged":
        partition.blobs.blobs[digest] = partition.blobs.blobs[digest][:100]
    elif how == "away":
        partition.blobs.unavailable = True
    elif how == "of another partition":
        partition.blobs.blobs[digest] = partition.blobs.blobs[digest].replace(b'"partition":0', b'"partition":1')
    else:
        partition.commit = Commit(2, "{")
    second = await owner_of(partition)
    assert second.sought == 0
    partition.append(completed("b"))
    assert types(await second.fold()) == ["StepReady"]


async def test_a_partition_that_comes_back_goes_on_without_reading_anything_again(partition: Partition) -> None:
    owner = await owner_of(partition)
    partition.append(started(DIAMOND), completed("a"))
    await owner.fold()
    await owner.commit(2)
    await owner.lose()
    partition.append(completed("b"))
    await owner.take()
    assert owner.sought == 2
    assert types(await owner.fold()) == ["StepReady"]


async def test_one_that_comes_back_with_an_older_commit_acts_again_from_there(partition: Partition) -> None:
    """Whatever was not acknowledged before the partition went may never have been appended."""
    owner = await owner_of(partition)
    partition.append(started(DIAMOND), completed("a"), completed("b"))
    await owner.fold()
    await owner.commit(2)
    await owner.lose()
    await owner.take()
    assert types(await owner.fold()) == ["StepReady"]


async def test_what_was_left_behind_is_forgotten_at_the_next_assignment(partition: Partition) -> None:
    owner = await owner_of(partition)
    partition.append(started(DIAMOND))
    await owner.fold()
    await owner.commit(1)
    await owner.lose()
    consumer = _Seekable(owner)
    await consumer.start()
    await owner.join.on_assigned(frozenset(), consumer)
    await owner.take()
    assert owner.sought == 0


async def test_another_owner_in_between_changes_nothing(partition: Partition) -> None:
    first = await owner_of(partition)
    partition.append(started(DIAMOND))
    await first.fold()
    await first.commit(1)
    await first.lose()
    second = await owner_of(partition)
    partition.append(completed("a"))
    await second.fold()
    await second.commit(2)
    await first.take()
    assert first.sought == 1
    partition.append(completed("b"))
    assert types(await first.fold()) == ["StepReady"]


async def test_a_log_that_was_made_anew_has_no_use_for_what_was_known_of_the_old_one(partition: Partition) -> None:
    first = await snapshotted(partition, started(DIAMOND), completed("a"))
    await first.lose()
    partition.kafka.log(TP).clear()
    await first.take()
    assert (first.sought, first.join.open_runs()) == (0, {0: 0})


async def test_timers_are_rebuilt_from_a_snapshot(partition: Partition) -> None:
    await snapshotted(partition, started(ONE))
    second = await owner_of(partition)
    await second.join._tick_due(partition.now + 60_000)
    (ticked,) = partition.kafka.log(TP)[1:]
    assert b"run-ticked" in (ticked.value or b"")


async def test_nothing_is_written_while_nothing_comes(partition: Partition) -> None:
    owner = await owner_of(partition)
    partition.append(started(DIAMOND))
    await owner.fold()
    await owner.snapshot()
    await owner.snapshot()
    assert len(owner.join.owned[0].trail.refs) == 1


async def test_a_store_that_is_away_is_tried_again_later(partition: Partition) -> None:
    owner = await owner_of(partition)
    partition.append(started(DIAMOND))
    await owner.fold()
    partition.blobs.unavailable = True
    await owner.snapshot()
    assert owner.join.metadata(TP, 1) == ""
    partition.blobs.unavailable = False
    await owner.snapshot()
    assert owner.join.metadata(TP, 1) != ""


async def test_a_run_that_waits_is_kept_packed_from_the_snapshot_on(partition: Partition) -> None:
    owner = await owner_of(partition)
    partition.append(started(DIAMOND), started(DIAMOND, request_id="r2"), completed("a"))
    await owner.fold()
    await owner.snapshot()
    runs = owner.join.owned[0].state.open
    assert {type(run) for run in runs.values()} == {PackedRun}
    partition.append(completed("b"))
    assert types(await owner.fold()) == ["StepReady"]
    await owner.join._tick_due(partition.now + 60_000)
    assert sorted(record.key or b"" for record in partition.kafka.log(TP)[4:]) == sorted(map(str.encode, runs))


async def test_the_fold_goes_on_while_a_snapshot_is_written(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots_module, "SLICE", 1)
    owner = await owner_of(partition)
    partition.append(*(started(DIAMOND, request_id=f"r{number}") for number in range(20)))
    await owner.fold()
    writing = asyncio.create_task(owner.snapshot())
    await asyncio.sleep(0)
    partition.append(completed("a", "r3"))
    await owner.fold()
    await writing
    kinds = [type(run) for run in owner.join.owned[0].state.open.values()]
    assert (kinds.count(PackedRun), kinds.count(Run)) == (19, 1), "what has changed meanwhile is as it is now"
    await owner.commit(21)
    second = await owner_of(partition)
    assert second.sought == 20, "it is the state as of when the writing began"
    assert len(second.join.owned[0].state.open) == 20
