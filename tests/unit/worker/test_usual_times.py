"""What is usual, by size of batch, and how it is forgotten."""

import pytest

from services.worker.domain.usual_times import MEMORY_S, UsualTimes


def test_nothing_is_usual_of_a_size_that_was_not_seen() -> None:
    usual = UsualTimes()
    usual.learn(1, 0.01, 0.0)
    assert usual.of(1) == pytest.approx(0.01)
    assert usual.of(32) is None


def test_the_first_calls_all_count_the_same() -> None:
    usual = UsualTimes()
    for took_s in (0.01, 0.02, 0.06):
        usual.learn(1, took_s, 0.0)
    assert usual.of(1) == pytest.approx(0.03)


@pytest.mark.parametrize("rate", [1, 10, 100])
def test_what_was_usual_fades_with_time_whatever_the_rate(rate: float) -> None:
    usual, now = UsualTimes(), 0.0
    for took_s, memories in ((0.01, 10), (1.01, 1)):
        for _ in range(round(rate * memories * MEMORY_S)):
            now += 1 / rate
            usual.learn(1, took_s, now)
    assert usual.of(1) == pytest.approx(1.01 - 1 / 2.718281828, rel=0.02)


def test_sizes_of_about_the_same_power_share_a_mean() -> None:
    usual = UsualTimes()
    usual.learn(16, 0.1, 0.0)
    assert usual.of(31) == usual.of(16)
    assert usual.of(32) is None


def test_it_can_forget() -> None:
    usual = UsualTimes()
    usual.learn(1, 0.01, 0.0)
    usual.forget()
    assert usual.of(1) is None
