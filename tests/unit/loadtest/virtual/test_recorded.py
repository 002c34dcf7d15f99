"""The recorded days: as many, as long and as busy as they were."""

import pytest

from loadtest.virtual.days import DAY_S, HOUR_S
from loadtest.virtual.recorded import RecordedDay, recorded


def test_each_day_has_its_ten_minutes() -> None:
    days = recorded(8.0)
    assert [len(day.rates) for day in days] == [144] * 9
    assert sum(rate == 0.0 for day in days for rate in day.rates) == 1, "the gap"


def test_the_last_day_is_scaled_and_the_others_with_it() -> None:
    as_recorded, scaled = recorded(1_828.0), recorded(8.0)
    assert as_recorded[0].rates[:3] == (810.0, 790.0, 788.0)
    assert scaled[-1].peak_per_s == pytest.approx(8.0)
    assert scaled[0].rates[0] == pytest.approx(810.0 * 8.0 / 1_828.0)


@pytest.mark.parametrize(
    ("hour", "per_s"), [(0.0, 1.0), (5.99, 1.0), (6.0, 2.0), (18.0, 4.0), (23.999, 4.0), (24.0, 1.0)]
)
def test_the_load_at_an_hour(hour: float, per_s: float) -> None:
    day = RecordedDay((1.0, 2.0, 3.0, 4.0))
    assert day.per_s(hour * HOUR_S) == per_s
    assert day.per_s(8 * DAY_S + hour * HOUR_S) == per_s
