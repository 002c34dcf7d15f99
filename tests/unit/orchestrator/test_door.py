"""The door: who is let in, who is not, and when those may come again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Priority
from services.orchestrator.domain.door import Announcement, Door

T0 = 1_700_000_000_000
INTERACTIVE, STANDARD, BATCH = Priority.INTERACTIVE, Priority.STANDARD, Priority.BATCH


def announced(count: int, at_ms: int = T0) -> Announcement:
    """`count` open runs, all in the first of two partitions."""
    return Announcement(at_ms, {0: count, 1: 0})


def door(open_runs: int = 0, max_open_runs: int = 100) -> Door:
    found = Door(max_open_runs, partitions=2)
    assert found.read([announced(open_runs)])
    return found


def lets_in(found: Door, priority: Priority, now_ms: int = T0) -> bool:
    return found.admit(priority, "run", now_ms) is None


@pytest.mark.parametrize(
    ("open_runs", "let_in"),
    [
        (79, [INTERACTIVE, STANDARD, BATCH]),
        (80, [INTERACTIVE, STANDARD]),
        (89, [INTERACTIVE, STANDARD]),
        (90, [INTERACTIVE]),
        (99, [INTERACTIVE]),
        (100, []),
        (5_000, []),
    ],
)
def test_the_lowest_lane_is_shut_out_first(open_runs: int, let_in: list[Priority]) -> None:
    assert [priority for priority in Priority if lets_in(door(open_runs), priority)] == let_in


def test_those_let_in_since_the_announcement_count() -> None:
    found = door(open_runs=97)
    assert [lets_in(found, INTERACTIVE) for _ in range(5)] == [True, True, True, False, False]
    assert found.open_runs == 100


def test_an_announcement_counts_those_let_in_before_it() -> None:
    found = door(open_runs=98)
    lets_in(found, INTERACTIVE, T0 + 100)
    lets_in(found, INTERACTIVE, T0 + 200)
    assert found.read([announced(100, T0 + 3_000)])
    assert found.open_runs == 100


def test_one_let_in_just_before_an_announcement_may_not_be_part_of_it() -> None:
    found = door(open_runs=10)
    lets_in(found, INTERACTIVE, T0 + 2_000)
    lets_in(found, INTERACTIVE, T0 + 2_900)
    assert found.read([announced(11, T0 + 3_000)])
    assert found.open_runs == 12


def test_the_same_announcement_read_again_forgets_nobody() -> None:
    found = door(open_runs=10)
    lets_in(found, BATCH, T0 + 2_000)
    assert found.read([announced(10)])
    assert found.open_runs == 11


@pytest.mark.parametrize(
    "said",
    [
        [],
        [Announcement(T0, {})],
        [Announcement(T0, {0: 4})],
        [Announcement(T0, {1: 4}), Announcement(T0 + 1, {1: 4})],
    ],
)
def test_announcements_that_leave_a_partition_out_say_nothing(said: list[Announcement]) -> None:
    assert not Door(100, partitions=2).read(said)


def test_partitions_of_several_aggregators_add_up_from_the_oldest_announcement_on() -> None:
    found = Door(100, partitions=2)
    found.read([Announcement(T0, {0: 0}), Announcement(T0, {1: 0})])
    lets_in(found, INTERACTIVE, T0 + 1_500)
    assert found.read([Announcement(T0 + 1_000, {0: 3}), Announcement(T0 + 3_000, {1: 4})])
    assert found.open_runs == 8


def test_the_later_claim_on_a_partition_is_right() -> None:
    found = Door(100, partitions=2)
    assert found.read([Announcement(T0, {0: 50, 1: 50}), Announcement(T0 + 1, {1: 2})])
    assert found.open_runs == 52


def test_a_plane_that_empties_says_when_there_will_be_room() -> None:
    """10 too many, 5 fewer each second: in 2 s, and up to as long again."""
    found = door(open_runs=125)
    found.read([announced(110, T0 + 3_000)])
    retry = found.admit(INTERACTIVE, "run", T0 + 3_000)
    assert retry is not None
    assert 2_000 <= retry <= 4_000


@pytest.mark.parametrize("later", [200, 250], ids=["full", "filling"])
def test_a_plane_that_does_not_empty_asks_for_the_longest_wait(later: int) -> None:
    found = door(open_runs=200)
    found.read([announced(later, T0 + 3_000)])
    retry = found.admit(INTERACTIVE, "run", T0 + 3_000)
    assert retry is not None
    assert 30_000 <= retry <= 60_000


def test_no_wait_is_shorter_than_an_announcement_can_change_anything() -> None:
    found = door(open_runs=100_000)
    found.read([announced(100, T0 + 3_000)])
    retry = found.admit(INTERACTIVE, "run", T0 + 3_000)
    assert retry is not None
    assert 1_000 <= retry <= 2_000


def test_the_trend_is_of_the_last_half_minute() -> None:
    found = door(open_runs=1_000)
    for second in range(3, 63, 3):
        found.read([announced(110, T0 + second * 1_000)])
    retry = found.admit(INTERACTIVE, "run", T0 + 60_000)
    assert retry is not None
    assert retry >= 30_000


def test_those_refused_together_come_back_apart_and_each_always_at_the_same_time() -> None:
    def retries() -> list[int | None]:
        found = door(open_runs=100)
        return [found.admit(INTERACTIVE, f"run-{number}", T0) for number in range(200)]

    assert retries() == retries()
    waits = [wait for wait in retries() if wait is not None]
    assert len(waits) == 200
    thirds = [sum(30_000 + third * 10_000 <= wait < 40_000 + third * 10_000 for wait in waits) for third in range(3)]
    assert min(thirds) > 40


@given(
    max_open_runs=st.integers(1, 200),
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(Priority), st.integers(0, 5_000)),
            st.tuples(st.integers(0, 300), st.integers(0, 5_000)),
        ),
        max_size=60,
    ),
)
def test_whatever_comes_no_lane_is_let_in_past_its_share_and_every_refusal_says_when(
    max_open_runs: int, steps: list[tuple[Priority | int, int]]
) -> None:
    """Tenths are compared as integers, so that the test rounds nothing."""
    found, now = door(0, max_open_runs), T0
    tenths = {INTERACTIVE: 10, STANDARD: 9, BATCH: 8}
    for what, after_ms in steps:
        now += after_ms
        if not isinstance(what, Priority):
            assert found.read([announced(what, now)])
            continue
        before = found.open_runs
        retry = found.admit(what, f"run-{now}", now)
        assert (retry is None) == (10 * before < tenths[what] * max_open_runs)
        assert found.open_runs == before + (retry is None)
        assert retry is None or 1_000 <= retry <= 60_000
