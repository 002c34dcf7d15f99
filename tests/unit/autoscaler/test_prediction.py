"""A load that comes every day is expected; a prediction raises floors only, to a cap, and knows how wrong it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.autoscaler.domain.prediction import Accuracy, Level, Prediction, SlotMean
from services.autoscaler.domain.season import DAY_SLOTS, SLOT_S, Season

DAY_S = 86_400
MORNING_S = 9 * 3_600
rates = st.floats(0, 1_000)


def taught(*days: float, quiet: float = 1.0) -> Prediction:
    """Days with so much load from 9 to 10, and little in all other hours."""
    prediction = Prediction()
    for day, rate in enumerate(days):
        for slot in range(DAY_SLOTS):
            at_s = slot * SLOT_S
            busy = MORNING_S <= at_s < MORNING_S + 3_600
            prediction.learn(day * DAY_S + at_s, rate if busy else quiet)
    return prediction


def floor(prediction: Prediction, now_s: float, lead_s: float = 150.0, ceiling: int = 100) -> int:
    return prediction.floor(now_s, lead_s, service_s=1.5, slots=2, ceiling=ceiling).replicas


def test_workers_are_asked_for_so_early_that_they_are_ready_when_the_load_comes() -> None:
    prediction = taught(20.0, 20.0)
    tomorrow_s = 2 * DAY_S + MORNING_S
    assert [floor(prediction, tomorrow_s - ahead_s) for ahead_s in (751, 750, 0)] == [1, 20, 20]
    assert floor(prediction, tomorrow_s + 3_600) == 1


def test_it_is_capped() -> None:
    assert floor(taught(20.0, 20.0), 2 * DAY_S + MORNING_S, ceiling=10) == 8


def test_the_cap_leaves_a_class_of_one_worker_its_one() -> None:
    assert floor(taught(20.0, 20.0), 2 * DAY_S + MORNING_S, ceiling=1) == 1


def test_less_than_a_task_in_a_slot_keeps_no_worker() -> None:
    nights_s = 2 * DAY_S + 3 * 3_600
    assert floor(taught(20.0, 20.0, quiet=1 / SLOT_S), nights_s) == 1
    assert floor(taught(20.0, 20.0, quiet=0.9 / SLOT_S), nights_s) == 0


def test_without_a_history_it_says_nothing() -> None:
    nothing = Prediction().floor(0.0, 150.0, 1.0, 1, 10)
    assert nothing == (0, "prediction: no history yet")
    assert taught(20.0).floor(DAY_S, 150.0, 1.0, 1, 10).replicas == 0, "a day that nothing confirmed"


def test_one_that_was_wrong_is_not_followed_until_it_is_right_again() -> None:
    prediction = taught(20.0, 20.0, quiet=1.0)
    for slot in range(12):
        prediction.learn(2 * DAY_S + slot * SLOT_S, 10.0)
    wrong = prediction.floor(2 * DAY_S + MORNING_S, 150.0, 1.0, 1, 100)
    assert wrong.replicas == 0
    assert "not followed" in wrong.why
    for slot in range(12, 130):
        prediction.learn(2 * DAY_S + slot * SLOT_S, 20.0 if 54 <= slot < 60 else 1.0)
    assert prediction.is_trusted


def test_an_old_week_counts_less() -> None:
    season = Season()
    for week in range(10):
        season.learn(week * 7 * DAY_S, 4.0 if week < 5 else 10.0)
    assert season.expected(10 * 7 * DAY_S) == pytest.approx(10 - 6 * 0.7**5)


def test_a_day_with_a_fifth_more_is_expected_to_go_on_like_that() -> None:
    prediction = taught(20.0, 20.0)
    for slot in range(MORNING_S // SLOT_S):
        prediction.learn(2 * DAY_S + slot * SLOT_S, 1.2)
    assert floor(prediction, 2 * DAY_S + MORNING_S) == 24
    assert prediction.accuracy.error == pytest.approx(0.0, abs=0.05)


def test_a_floor_that_trembles_about_a_whole_number_stays() -> None:
    prediction, nine_s = taught(20.0, 20.0), 2 * DAY_S + MORNING_S
    floors = [
        prediction.floor(nine_s + second, 150.0, service_s=1.5 + 0.01 * (-1) ** second, slots=2, ceiling=100).replicas
        for second in range(200)
    ]
    assert set(floors) == {21}, "20.1 workers and 19.9 in turn"


def test_a_day_with_ten_times_as_much_is_no_day_like_the_others() -> None:
    assert Level(came=10.0, usual=1.0).factor == 1.5
    assert Level(came=0.0, usual=1.0).factor == 0.5
    assert Level().factor == 1.0


def test_days_differ_once_they_are_known() -> None:
    season = Season()
    for week in range(2):
        season.learn(week * 7 * DAY_S, 8.0)
        season.learn(week * 7 * DAY_S + DAY_S, 2.0)
    assert season.expected(14 * DAY_S) == 8.0
    assert season.expected(15 * DAY_S) == 2.0
    assert season.expected(16 * DAY_S) not in (None, 8.0, 2.0), "a day never seen is like the others"
    assert season.expected(16 * DAY_S + SLOT_S) is None


def test_its_error_is_what_it_missed_by_of_what_came() -> None:
    accuracy = Accuracy().after(8.0, 10.0).after(12.0, 10.0)
    assert accuracy.error == pytest.approx(0.2)
    assert Accuracy().error is None


@given(st.lists(rates, min_size=1, max_size=30))
def test_what_is_expected_lies_within_what_was_seen(weeks: list[float]) -> None:
    season = Season()
    for week, rate in enumerate(weeks):
        season.learn(week * 7.0 * DAY_S, rate)
    expected = season.expected(0.0)
    assert expected is not None
    assert min(weeks) - 1e-6 <= expected <= max(weeks) + 1e-6


def test_a_slot_is_told_when_it_is_over_as_the_mean_of_what_was_seen_in_it() -> None:
    mean = SlotMean()
    assert mean.observe(10.0, 4.0) is None
    assert mean.observe(20.0, None) is None
    assert mean.observe(599.0, 6.0) is None
    assert mean.observe(600.0, 9.0) == (0, 5.0)
    assert mean.observe(1_200.0, None) == (600, 9.0)
    assert mean.observe(1_800.0, None) is None, "a slot in which nothing was seen teaches nothing"
