"""A day has its shape, a little more or less of it, a little earlier or later."""

import random

import pytest

from loadtest.virtual.days import DAY_S, HOUR_S, Day, some_day

USUAL = Day(10.0, 0.0)


@pytest.mark.parametrize(
    ("hour", "per_s"), [(3.0, 1.0), (8.5, 2.0), (9.025, 5.75), (11.5, 10.0), (12.5, 4.5), (17.75, 5.75), (24.0, 1.0)]
)
def test_the_load_at_an_hour(hour: float, per_s: float) -> None:
    assert USUAL.per_s(hour * HOUR_S) == pytest.approx(per_s)
    assert USUAL.per_s(5 * DAY_S + hour * HOUR_S) == pytest.approx(per_s)


def test_a_late_day_is_the_same_later() -> None:
    late = USUAL._replace(shift_s=60.0)
    assert late.per_s(9.05 * HOUR_S + 60) == pytest.approx(USUAL.per_s(9.05 * HOUR_S))


def test_days_differ_by_a_few_percent_and_a_minute_or_so() -> None:
    dice = random.Random(3)
    days = [some_day(10.0, dice) for _ in range(200)]
    assert all(8.0 < day.peak_per_s < 12.0 for day in days)
    assert all(abs(day.shift_s) < 300.0 for day in days)
    assert len({day.peak_per_s for day in days}) == 200
