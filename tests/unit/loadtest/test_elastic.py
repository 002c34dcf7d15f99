"""How workers followed a burst, from hand-made logs."""

import pytest

from loadtest.elastic import Course, Kind, followed, lag_s, near, over_provision, warm_ms
from loadtest.fleet import Level, Span
from loadtest.steps import Step

COURSE = Course(
    begun_ms=0,
    burst_ms=10_000,
    struck_ms=20_000,
    over_ms=30_000,
    ended_ms=100_000,
    base_per_s=6.0,
    times=10.0,
)
HALF = Kind(share=0.5, slots=8, service_s=1.0)
"""At 6 runs a second its calls take half a worker of eight slots, three quarters of them busy; at 60, five."""
LEVELS = [Level(0, 1), Level(12_000, 4), Level(14_000, 5), Level(25_000, 7), Level(60_000, 2), Level(70_000, 1)]
SPANS = [Span(0, 99_000), *(Span(15_000 + 100 * number, 70_000) for number in range(4))]


@pytest.mark.parametrize(
    ("needed", "expected"), [(7.0, (6, 8)), (4.9, (4, 6)), (1.75, (1, 2)), (10.0, (9, 11)), (100.0, (90, 111))]
)
def test_near_enough_is_a_tenth_to_whole_workers(needed: float, expected: tuple[int, int]) -> None:
    low, high = near(needed)
    assert (low, high) == pytest.approx(expected, abs=1 if needed == 100 else 0)


def test_a_class_follows_its_own_rate_until_somebody_is_killed() -> None:
    found = followed(COURSE, HALF, LEVELS, SPANS, [])
    assert (found.needed, found.base, found.peak, found.follows) == (5.0, 1, 5, True)
    assert found.peak_ratio == 5.0  # a class that every run calls needs one worker at the usual rate


def test_more_than_a_tenth_too_many_do_not_follow() -> None:
    assert not followed(COURSE, HALF, [Level(0, 1), Level(12_000, 7)], SPANS, []).follows
    assert not followed(COURSE, HALF, [Level(0, 1), Level(12_000, 3)], SPANS, []).follows


def test_it_has_scaled_out_when_as_many_as_are_near_enough_are_warm() -> None:
    assert followed(COURSE, HALF, LEVELS, SPANS, []).scale_out_s == 5.2  # the fourth of four to six
    assert followed(COURSE, HALF, LEVELS, SPANS[:3], []).scale_out_s is None


def test_it_is_back_when_no_more_are_decided_on_than_before() -> None:
    assert followed(COURSE, HALF, LEVELS, SPANS, []).back_s == 40.0
    assert followed(COURSE, HALF, LEVELS[:-1], SPANS, []).back_s is None


def test_worker_time_is_over_what_the_rate_asks_for() -> None:
    """Asked for: 5 workers for 20 s, and half of one for 80 s: 140. Decided on: 12 + 8 + 55 + 245 + 20 + 30 = 370."""
    assert over_provision(COURSE, HALF, LEVELS) == pytest.approx(370 / 140 - 1)


def test_lag_is_in_seconds_of_the_work_of_the_workers_there_are() -> None:
    steps = [Step("code", 1_000, 9_000 + 1_000 * number, 2_000.0) for number in range(4)]
    spans = [Span(0, 99_000), Span(9_500, 99_000)]
    assert lag_s(steps, spans, slots=2) == [(1_000, 4.0), (9_000, 3.0), (10_000, 1.0), (11_000, 0.5), (12_000, 0.0)]
    assert lag_s(steps, [], slots=2)[0] == (1_000, 4.0)


def test_the_lag_at_the_end_of_the_burst_is_the_last_one_in_it() -> None:
    steps = [Step("code", 29_000, 33_000, 1_000.0), Step("code", 31_000, 35_000, 1_000.0)]
    found = followed(COURSE, HALF, LEVELS, [Span(0, 99_000)], steps)
    assert (found.lag_over_s, found.lag_peak_s) == (0.125, 0.25)


def test_the_first_moment_may_be_the_very_first() -> None:
    assert warm_ms(SPANS, 1, 500) == 500
    assert warm_ms(SPANS, 3, 500) == 15_100
    assert warm_ms(SPANS, 6, 500) is None
