"""Lag is counted from where a group goes on; what is not known stays unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Priority
from schemas.models import ModelClass, Queue, queues
from services.autoscaler.domain.backlog import UNKNOWN, Behind, behind, by_lane, next_to_do, together

CLASS = ModelClass.model_validate(
    {"backends": [{"name": "local", "engine": {"kind": "simulated"}}], "lanes": {"standard": "4", "batch": "5-6"}}
)
NONE_LEFT = Behind(0, 0.0)


@pytest.fixture
def queue() -> Queue:
    (found,) = queues({"llm": CLASS})
    return found


@pytest.mark.parametrize(
    ("begin", "committed", "end", "position"),
    [
        (0, 3, 8, 3),
        (2, None, 8, 2),
        (5, 3, 8, 5),
        (8, 8, 8, 8),
        (0, 9, 8, None),
    ],
    ids=[
        "from its commit",
        "without one, from the oldest",
        "past the expired",
        "at the end",
        "but not from beyond it",
    ],
)
def test_a_group_goes_on(begin: int, committed: int | None, end: int, position: int | None) -> None:
    assert next_to_do(begin, committed, end) == position


@given(st.integers(0, 1_000), st.none() | st.integers(0, 1_000), st.integers(0, 1_000), st.floats(0, 2e12))
def test_lag_is_never_negative(begin: int, committed: int | None, end: int, stamped_ms: float) -> None:
    position = next_to_do(begin, committed, end)
    if position is not None:
        tasks, seconds = behind(position, end, stamped_ms, now_ms=10**12)
        assert tasks is not None
        assert seconds is not None
        assert tasks >= 0
        assert seconds >= 0


@given(st.integers(0, 100), st.integers(0, 100))
def test_what_is_published_after_the_commit_is_the_lag(committed: int, published: int) -> None:
    position = next_to_do(0, committed, committed + published)
    assert position is not None
    assert behind(position, committed + published, 0.0, 0).tasks == published


def test_the_age_of_the_oldest_grows_with_the_clock() -> None:
    ages = [behind(5, 9, stamped_ms=1_000.0, now_ms=now_ms).seconds for now_ms in (1_000, 2_500, 601_000)]
    assert ages == [0.0, 1.5, 600.0]


def test_nothing_left_is_no_age_even_where_no_time_is_known() -> None:
    assert behind(9, 9, None, None) == NONE_LEFT


@pytest.mark.parametrize(("stamped_ms", "now_ms"), [(None, 5), (5.0, None)])
def test_without_a_time_only_the_tasks_are_known(stamped_ms: float | None, now_ms: int | None) -> None:
    assert behind(5, 9, stamped_ms, now_ms) == Behind(4, None)


def test_tasks_add_up_over_the_partitions_of_a_lane_and_the_oldest_counts(queue: Queue) -> None:
    partitions = dict.fromkeys(range(7), NONE_LEFT) | {0: Behind(3, 1.5), 3: Behind(4, 9.0), 6: Behind(2, 0.5)}
    assert by_lane(queue, partitions) == {
        Priority.INTERACTIVE: Behind(7, 9.0),
        Priority.STANDARD: NONE_LEFT,
        Priority.BATCH: Behind(2, 0.5),
    }


def test_an_unreadable_partition_makes_its_lane_unknown_and_no_other(queue: Queue) -> None:
    partitions = dict.fromkeys(range(7), NONE_LEFT) | {0: UNKNOWN}
    del partitions[6]
    found = by_lane(queue, partitions)
    assert (found[Priority.INTERACTIVE], found[Priority.BATCH]) == (UNKNOWN, UNKNOWN)
    assert found[Priority.STANDARD] == NONE_LEFT


def test_an_unknown_age_leaves_the_tasks_known() -> None:
    assert together([Behind(3, 1.0), Behind(4, None)]) == Behind(7, None)
