"""However records come and whenever one looks, a stamp is right to the time between two looks."""

from bisect import bisect_right
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.autoscaler.domain.arrivals import MAX_GAP_MS, MAX_MARKS, Arrivals

Times = list[int]

steps = st.lists(st.integers(1, MAX_GAP_MS), min_size=2, max_size=40)
times = st.lists(st.integers(0, 60_000), max_size=60).map(sorted)


def _looks(of: list[int]) -> Times:
    return list(accumulate(of))


def _seen(stamps: Times, looks: Times) -> Arrivals:
    """A record stamped at the moment of a look is seen by it."""
    arrivals = Arrivals()
    for at_ms in looks:
        arrivals.observe(bisect_right(stamps, at_ms), at_ms)
    return arrivals


@given(times, steps.map(_looks))
def test_a_stamp_lies_between_the_looks_that_the_record_came_between(stamps: Times, looks: Times) -> None:
    arrivals = _seen(stamps, looks)
    for offset, true_ms in enumerate(stamps):
        told = arrivals.stamp_of(offset)
        if told is not None:
            before, after = next(pair for pair in pairwise(looks) if pair[0] < true_ms <= pair[1])
            assert before <= told <= after


@given(times, steps.map(_looks))
def test_every_record_that_came_between_two_looks_is_told(stamps: Times, looks: Times) -> None:
    arrivals = _seen(stamps, looks)
    assert len(looks) <= MAX_MARKS
    for offset, true_ms in enumerate(stamps):
        assert (arrivals.stamp_of(offset) is not None) == (looks[0] < true_ms <= looks[-1])


@given(times, steps.map(_looks))
def test_later_records_are_not_older(stamps: Times, looks: Times) -> None:
    arrivals = _seen(stamps, looks)
    told = [stamp for offset in range(len(stamps)) if (stamp := arrivals.stamp_of(offset)) is not None]
    assert told == sorted(told)
