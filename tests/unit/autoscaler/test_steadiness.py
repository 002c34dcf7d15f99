"""Up at once, down once a window; a load that flaps changes nothing."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.autoscaler.domain.steadiness import Steadied, begin, steadied

WINDOW_S = 60.0
loads = st.lists(st.integers(0, 12), min_size=1, max_size=400)


def followed(wishes: Sequence[int], replicas: int = 0) -> list[Steadied]:
    """Looked at every second."""
    found = [begin(replicas, 0.0)]
    for second, wish in enumerate(wishes, 1):
        found.append(steadied(found[-1], wish, float(second), WINDOW_S))
    return found[1:]


def replicas(wishes: Sequence[int], before: int = 0) -> list[int]:
    return [state.replicas for state in followed(wishes, before)]


def changes(numbers: Sequence[int]) -> list[int]:
    """The seconds in which the number was another one than before."""
    return [second for second, (before, after) in enumerate(pairwise(numbers), 1) if before != after]


def test_more_is_granted_at_once() -> None:
    assert replicas([1, 5, 3, 9]) == [1, 5, 5, 9]


def test_a_clock_that_is_set_back_an_hour_keeps_nothing_for_an_hour() -> None:
    state = steadied(begin(8, 3_600.0), 8, 3_601.0, WINDOW_S)
    for second in range(round(WINDOW_S) + 2):
        state = steadied(state, 2, float(second), WINDOW_S)
    assert state.replicas == 2


def test_less_is_granted_when_a_whole_window_wished_for_less() -> None:
    numbers = replicas([8, *[2] * 70])
    assert numbers[:60] == [8] * 60
    assert numbers[60:] == [2] * 11


def test_a_load_that_falls_in_ten_steps_takes_one() -> None:
    falling = [10] * 5 + [step for step in range(9, 1, -1) for _ in range(3)] + [1] * 200
    assert changes(replicas(falling, before=10)) == [64]


@pytest.mark.parametrize("period", [2, 7, 30, 59])
def test_a_load_that_flaps_within_the_window_changes_nothing(period: int) -> None:
    high_then_low = ([8] * (period // 2) + [1] * (period - period // 2)) * (600 // period)
    assert set(replicas(high_then_low, before=8)) == {8}


@given(loads, st.integers(0, 12))
def test_no_wish_is_refused(wishes: list[int], before: int) -> None:
    assert all(number >= wish for number, wish in zip(replicas(wishes, before), wishes, strict=True))


@given(loads, st.integers(0, 12))
def test_a_window_lowers_once_and_not_when_it_has_raised(wishes: list[int], before: int) -> None:
    numbers = [before, *replicas(wishes, before)]
    changed = changes(numbers)
    lowered = [second for second in changed if numbers[second] < numbers[second - 1]]
    earlier = [max((at for at in changed if at < second), default=0) for second in lowered]
    assert all(second - at >= WINDOW_S for second, at in zip(lowered, earlier, strict=True))


@given(loads, st.integers(0, 12))
def test_only_what_was_wished_for_within_a_window_is_kept(wishes: list[int], before: int) -> None:
    settled = [*wishes, *[3] * 125]
    assert replicas(settled, before)[-1] == 3


@given(loads)
def test_the_wishes_kept_are_few_and_tell_the_most(wishes: list[int]) -> None:
    for second, state in enumerate(followed(wishes), 1):
        assert state.wishes[0].replicas == max(
            [*([0] if second < WINDOW_S else []), *wishes[max(0, second - 60) : second]]
        )
        assert len(state.wishes) <= 13


def test_it_is_not_lowered_below_what_is_needed_now() -> None:
    before = begin(4, 0.0)
    assert [steadied(before, 1, 100.0, WINDOW_S, least).replicas for least in (0, 3, 4, 5)] == [1, 3, 4, 4]
    assert steadied(before, 6, 100.0, WINDOW_S, least=4).replicas == 6
