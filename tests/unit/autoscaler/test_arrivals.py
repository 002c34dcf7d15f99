"""When a record was appended is told from looking at the end of its partition, or not at all."""

import pytest

from services.autoscaler.domain.arrivals import MAX_GAP_MS, MAX_MARKS, Arrivals


@pytest.fixture
def arrivals() -> Arrivals:
    return Arrivals()


def test_a_record_came_between_two_looks(arrivals: Arrivals) -> None:
    arrivals.observe(10, 1_000)
    arrivals.observe(11, 2_000)
    assert arrivals.stamp_of(10) == 1_500


def test_several_records_are_taken_to_have_come_evenly(arrivals: Arrivals) -> None:
    arrivals.observe(10, 1_000)
    arrivals.observe(14, 2_000)
    assert [arrivals.stamp_of(offset) for offset in range(10, 14)] == [1_200, 1_400, 1_600, 1_800]


def test_the_time_in_which_nothing_came_counts_for_none(arrivals: Arrivals) -> None:
    for at_ms in (0, 1_000, 60_000):
        arrivals.observe(5, at_ms)
    arrivals.observe(6, 61_000)
    assert arrivals.stamp_of(5) == 60_500


@pytest.mark.parametrize("offset", [9, 12], ids=["before the first look", "not there yet"])
def test_what_was_not_seen_coming_has_to_be_read(arrivals: Arrivals, offset: int) -> None:
    arrivals.observe(10, 1_000)
    arrivals.observe(12, 2_000)
    assert arrivals.stamp_of(offset) is None


def test_what_came_while_nobody_looked_has_to_be_read(arrivals: Arrivals) -> None:
    arrivals.observe(10, 0)
    arrivals.observe(20, MAX_GAP_MS + 1)
    assert arrivals.stamp_of(10) is None
    arrivals.learn(10, 700)
    assert arrivals.stamp_of(10) == 700
    assert arrivals.stamp_of(11) is None, "the stamp of a record says nothing of the next one"


def test_the_oldest_record_keeps_its_stamp_for_ever(arrivals: Arrivals) -> None:
    arrivals.observe(0, 0)
    arrivals.observe(1, 1_000)
    for second in range(2, 3 * MAX_MARKS):
        arrivals.observe(second, 1_000 * second)
        assert arrivals.stamp_of(0) == 500


def test_a_log_that_has_shrunk_is_another_log(arrivals: Arrivals) -> None:
    arrivals.observe(10, 0)
    arrivals.observe(11, 1_000)
    assert arrivals.stamp_of(10) == 500
    arrivals.observe(3, 2_000)
    arrivals.observe(12, 3_000)
    assert arrivals.stamp_of(10) == pytest.approx(2_800)


def test_a_clock_that_steps_back_does_not_reorder_what_was_seen(arrivals: Arrivals) -> None:
    arrivals.observe(1, 5_000)
    arrivals.observe(2, 4_000)
    arrivals.observe(2, 3_000)
    arrivals.observe(3, 5_500)
    assert (arrivals.stamp_of(1), arrivals.stamp_of(2)) == (5_000, 5_250)
