"""Offsets of a worker's partitions, over assignments that come and go with any crash: nothing is passed undone."""

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from schemas.base import Priority
from schemas.models import Lanes
from services.chassis.kafka.types import Record, TopicPartition
from services.worker.assignment import MAX_SPAN, Assignment

TOPIC = "inference-tasks-llm"
PARTITIONS = (0, 4, 8, 12)
"""One of each lane, and one of none."""


class AssignmentMachine(RuleBasedStateMachine):
    """Two lives are told apart: what the broker keeps (log, commits), and what a crash or a rebalance forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[int, list[int]] = {partition: [0] for partition in PARTITIONS}
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.done: set[tuple[int, int]] = set()
        self.running: dict[tuple[int, int], Callable[[], None]] = {}
        self.orphans: list[Callable[[], None]] = []
        self.rebalance(set(PARTITIONS))

    @rule(owned=st.sets(st.sampled_from(PARTITIONS)))
    def rebalance(self, owned: set[int]) -> None:
        """Positions start at the commits again; tasks that run outlive their assignment. A crash is the same."""
        self.orphans += self.running.values()
        self.running = {}
        self.position = {partition: self.committed[partition] for partition in owned}
        self.assignment = Assignment(
            Lanes(), {TopicPartition(TOPIC, partition): at for partition, at in self.position.items()}
        )

    @rule(partition=st.sampled_from(PARTITIONS), gaps=st.lists(st.integers(1, 3), min_size=1, max_size=5))
    def append(self, partition: int, gaps: list[int]) -> None:
        for gap in gaps:
            self.log[partition].append(self.log[partition][-1] + gap)

    @rule(lane=st.sampled_from(Priority), count=st.integers(1, 9))
    def poll(self, lane: Priority, count: int) -> None:
        for tp in self.assignment.open(lane):
            ahead = [offset for offset in self.log[tp.partition] if offset >= self.position[tp.partition]]
            for offset in ahead[:count]:
                self._deliver(tp.partition, offset, lane)

    def _deliver(self, partition: int, offset: int, lane: Priority) -> None:
        record = Record(TOPIC, partition, offset, 0, None, None)
        assert self.assignment.lane(record) is lane
        end = self.assignment.deliver(record)
        assert end is not None
        self.running[partition, offset] = end
        self.position[partition] = offset + 1

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.running)))
        self.running.pop(task)()
        self.done.add(task)

    @precondition(lambda self: self.orphans)
    @rule()
    def finish_what_outlived_its_assignment(self) -> None:
        self.orphans.pop(0)()

    @rule(partition=st.sampled_from(PARTITIONS))
    def deliver_late(self, partition: int) -> None:
        """A fetch that was on its way when its partition was taken."""
        if partition not in self.position:
            assert self.assignment.deliver(Record(TOPIC, partition, 0, 0, None, None)) is None

    @rule()
    def commit(self) -> None:
        offsets = self.assignment.committable()
        self.assignment.committed(offsets)
        for tp, commit in offsets.items():
            assert commit.offset > self.committed[tp.partition]
            self.committed[tp.partition] = commit.offset
        assert self.assignment.committable() == {}
        assert self.assignment.progress == {partition: self.committed[partition] for partition in self.position}

    @invariant()
    def nothing_below_a_commit_is_undone(self) -> None:
        for partition, at in self.committed.items():
            assert all((partition, offset) in self.done for offset in self.log[partition] if offset < at)

    @invariant()
    def the_commit_can_move_up_to_the_first_task_that_runs(self) -> None:
        found = {tp.partition: commit.offset for tp, commit in self.assignment.committable().items()}
        for partition, position in self.position.items():
            first = min((offset for owner, offset in self.running if owner == partition), default=position)
            assert found.get(partition, self.committed[partition]) == first

    @invariant()
    def every_partition_is_open_while_its_span_has_room(self) -> None:
        found = [tp.partition for lane in Priority for tp in self.assignment.open(lane)]
        assert sorted(found) == sorted(self.position)
        assert len(self.running) < MAX_SPAN


TestAssignment = AssignmentMachine.TestCase
