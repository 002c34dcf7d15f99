from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Priority
from schemas.models import Lanes
from services.chassis.kafka.types import Commit, Record, TopicPartition
from services.worker.assignment import MAX_SPAN, Assignment

TOPIC = "inference-tasks-llm"


def tp(partition: int) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


def record(offset: int, partition: int = 0) -> Record:
    return Record(TOPIC, partition, offset, 0, None, None)


def owning(*partitions: int) -> Assignment:
    return Assignment(Lanes(), {tp(partition): 0 for partition in partitions})


def test_a_partition_belongs_to_its_lane() -> None:
    assignment = owning(0, 4, 9)
    lanes = [assignment.lane(record(0, partition)) for partition in (0, 4, 9)]
    assert lanes == [Priority.INTERACTIVE, Priority.STANDARD, Priority.BATCH]


def test_a_partition_of_no_lane_is_served_like_the_lowest() -> None:
    assert owning(12).lane(record(0, 12)) is Priority.BATCH


def test_what_is_not_owned_is_not_taken() -> None:
    assignment = owning(0)
    assert assignment.lane(record(0, 1)) is None
    assert assignment.deliver(record(0, 1)) is None
    assert not assignment.owns(Priority.STANDARD)


def test_the_commit_stands_at_the_first_task_that_has_not_ended() -> None:
    assignment = owning(0)
    passed = [assignment.deliver(record(offset)) for offset in (0, 1, 5)]
    assert all(passed)
    assert assignment.committable() == {}
    for ended, at in ((1, None), (0, 5), (2, 6)):
        end = passed[ended]
        assert end
        end()
        assert assignment.committable() == ({tp(0): Commit(at)} if at else {})


def test_what_is_committed_is_not_committed_again_and_never_goes_back() -> None:
    assignment = owning(0)
    end = assignment.deliver(record(0))
    assert end
    end()
    assignment.committed({tp(0): Commit(1)})
    assignment.committed({tp(0): Commit(0)})
    assert assignment.committable() == {}
    assert assignment.progress == {0: 1}


def test_a_partition_far_ahead_of_its_commit_delivers_no_more() -> None:
    assignment = owning(0, 1)
    ends = [assignment.deliver(record(offset)) for offset in range(MAX_SPAN)]
    for end in ends[1:]:
        assert end
        end()
    assert assignment.open(Priority.INTERACTIVE) == [tp(1)]
    assert ends[0]
    ends[0]()
    assert assignment.open(Priority.INTERACTIVE) == [tp(0), tp(1)]


@given(st.lists(st.booleans(), max_size=60), st.randoms())
def test_no_commit_passes_a_task_that_runs(deliveries: list[bool], luck: Random) -> None:
    assignment = owning(0)
    running: dict[int, Callable[[], None] | None] = {}
    offset = 0
    for is_delivery in deliveries:
        if is_delivery or not running:
            running[offset] = assignment.deliver(record(offset))
            offset += 1
        else:
            ended = luck.choice(sorted(running))
            end = running.pop(ended)
            assert end
            end()
        at = assignment.committable().get(tp(0), Commit(0)).offset
        assert at <= min(running, default=offset)
