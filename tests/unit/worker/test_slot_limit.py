"""Slots follow what the engine can take: down by what is too much, up one by one, and never for a moment's reason."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.engine import Load
from services.worker.domain.slot_limit import FORGETS_AFTER, SlotLimit

ROOMY = Load(running=4, waiting=0, kv_cache_use=0.5)


def look(limit: SlotLimit, busy: int, load: Load | None) -> None:
    """At a worker that has more to do as soon as it has slots for it."""
    limit.look(busy, load, wants_more=busy >= limit.usable)


def queueing(running: int, waiting: int) -> Load:
    return Load(running, waiting, kv_cache_use=0.5)


def full(use: float, running: int = 4) -> Load:
    return Load(running, 0, use)


def lowered(configured: int = 16, to: int = 4) -> SlotLimit:
    """One whose engine could take only so many of them, and has nothing more in flight by now."""
    limit = SlotLimit(configured)
    limit.refused(busy=2 * to)
    look(limit, 0, None)
    assert limit.usable == to
    return limit


def test_it_begins_with_what_is_configured() -> None:
    assert SlotLimit(16).usable == 16


def test_an_engine_that_queues_gets_what_it_works_on() -> None:
    limit = SlotLimit(16)
    for _ in range(2):
        look(limit, 16, queueing(running=12, waiting=4))
    assert limit.usable == 12


def test_a_queue_of_a_moment_is_none() -> None:
    limit = SlotLimit(16)
    for load in (queueing(8, 8), ROOMY, queueing(8, 8), ROOMY):
        look(limit, 16, load)
    assert limit.usable == 16


def test_a_long_queue_takes_no_more_than_half_at_once() -> None:
    limit = SlotLimit(16)
    for _ in range(2):
        look(limit, 16, queueing(running=1, waiting=99))
    assert limit.usable == 8


@pytest.mark.parametrize(("use", "usable"), [(0.89, 20), (0.9, 18), (1.0, 18)])
def test_a_kv_cache_that_is_nearly_full_takes_a_tenth(use: float, usable: int) -> None:
    limit = SlotLimit(20)
    look(limit, 20, full(use))
    assert limit.usable == usable


def test_a_refused_call_halves_and_others_of_that_moment_nothing_more() -> None:
    limit = SlotLimit(16)
    for busy in range(16, 8, -1):
        limit.refused(busy)
    assert limit.usable == 8


def test_a_cut_is_taken_from_what_is_in_flight() -> None:
    limit = SlotLimit(64)
    limit.refused(busy=10)
    assert limit.usable == 5


def test_the_next_cut_waits_until_the_last_one_shows() -> None:
    limit = SlotLimit(16)
    look(limit, 16, full(0.95))
    for busy in (16, 15):
        look(limit, busy, full(0.95))
        limit.refused(busy)
    assert limit.usable == 14
    look(limit, 14, full(0.95))
    assert limit.usable == 12


@pytest.mark.parametrize("busy", [0, 1])
def test_one_slot_is_always_left(busy: int) -> None:
    limit = SlotLimit(1)
    limit.refused(busy)
    look(limit, busy, queueing(1, 50))
    look(limit, busy, queueing(1, 50))
    look(limit, busy, full(1.0))
    assert limit.usable == 1


@pytest.mark.parametrize("load", [ROOMY, None])
def test_slots_that_are_used_up_become_one_more_at_each_look(load: Load | None) -> None:
    limit = lowered(to=4)
    for usable in (5, 6, 7):
        look(limit, limit.usable, load)
        assert limit.usable == usable


def test_a_slot_more_that_does_not_help_is_taken_back() -> None:
    limit = lowered(to=4)
    look(limit, 4, ROOMY)
    for _ in range(2):
        assert limit.usable == 5
        look(limit, 5, queueing(running=4, waiting=1))
    assert limit.usable == 4
    for _ in range(5):
        look(limit, 5, queueing(running=4, waiting=1))  # the call that was too much goes on
    assert limit.usable == 4


def test_a_slot_more_that_is_not_needed_any_more_is_taken_back() -> None:
    limit = lowered(to=4)
    look(limit, 4, ROOMY)
    assert limit.usable == 5
    look(limit, 3, ROOMY)
    assert limit.usable == 4


def test_slots_that_are_not_used_up_stay_as_they_are() -> None:
    limit = lowered(to=8)
    for _ in range(FORGETS_AFTER + 1):
        look(limit, 5, ROOMY)
    assert limit.usable == 8


@pytest.mark.parametrize("load", [full(0.8), full(0.89), queueing(4, 1)])
def test_an_engine_without_room_is_given_no_more(load: Load) -> None:
    limit = lowered(to=4)
    look(limit, 4, load)
    assert limit.usable == 4


def test_there_are_never_more_than_are_configured() -> None:
    limit = SlotLimit(4)
    look(limit, 4, ROOMY)
    assert limit.usable == 4


def test_after_an_idle_minute_it_is_forgotten() -> None:
    limit = lowered(configured=16, to=2)
    for _ in range(FORGETS_AFTER - 2):
        look(limit, 0, None)
    assert limit.usable == 2
    look(limit, 0, None)
    assert limit.usable == 16


LOADS = st.none() | st.builds(Load, st.integers(0, 99), st.integers(0, 99), st.none() | st.floats(0, 1))


@given(st.integers(1, 99), st.lists(st.tuples(st.integers(0, 99), LOADS | st.just("refused"))))
def test_whatever_is_seen_it_stays_between_one_and_the_configured_number(
    configured: int, looks: list[tuple[int, Load | Literal["refused"] | None]]
) -> None:
    limit = SlotLimit(configured)
    for busy, load in looks:
        if load == "refused":
            limit.refused(busy)
        else:
            look(limit, busy, load)
        assert 1 <= limit.usable <= configured


def test_an_engine_of_six_is_given_about_six_of_twenty() -> None:
    """The worker always has enough to do; what the engine cannot take waits inside it."""
    limit, busy, seen = SlotLimit(20), 0, []
    for _ in range(200):
        busy = max(limit.usable, busy - 3)  # at most three calls end between two looks
        look(limit, busy, queueing(min(busy, 6), max(0, busy - 6)))
        seen.append(limit.usable)
    assert set(seen[20:]) <= {5, 6, 7, 8}


def test_a_kv_cache_of_ten_calls_is_kept_below_nine_tenths() -> None:
    limit, seen = SlotLimit(20), []
    for _ in range(100):
        busy = limit.usable
        look(limit, busy, full(min(1.0, busy / 10), running=busy))
        seen.append(limit.usable)
    assert set(seen[20:]) == {8}


def test_two_workers_that_share_a_server_come_to_equal_parts() -> None:
    """Chiu and Jain 1989: cuts take more from who has more, steps up give both the same."""
    rich, poor = SlotLimit(30), lowered(configured=30, to=2)
    for _ in range(400):
        ours = rich.usable + poor.usable
        load = queueing(min(ours, 16), max(0, ours - 16))
        look(rich, rich.usable, load)
        look(poor, poor.usable, load)
    assert abs(rich.usable - poor.usable) <= 2
