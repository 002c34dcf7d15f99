"""A rate follows a burst within seconds, and chance not at all."""

import math

import pytest

from services.autoscaler.domain.arrivals import Arrivals
from services.autoscaler.domain.rates import LONG_MS, SHORT_MS, arrivals_per_s, believable


def looked(*ends: tuple[int, int]) -> Arrivals:
    """A partition whose end was seen to be (end, at second)."""
    arrivals = Arrivals()
    for end, at_s in ends:
        arrivals.observe(end, at_s * 1_000)
    return arrivals


def steady(per_s: int, seconds: int, begin: int = 0) -> list[tuple[int, int]]:
    return [(begin + per_s * second, second) for second in range(seconds + 1)]


def test_a_steady_partition_has_its_rate_in_every_window() -> None:
    partition = looked(*steady(7, 100, begin=1_000))
    assert partition.per_s(SHORT_MS) == pytest.approx(7)
    assert partition.per_s(LONG_MS) == pytest.approx(7)


def test_what_was_there_before_the_first_look_is_no_arrival() -> None:
    assert looked((5_000, 0), (5_000, 5)).per_s(SHORT_MS) == 0


def test_one_look_is_no_rate() -> None:
    assert Arrivals().per_s(SHORT_MS) is None
    assert looked((9, 0)).per_s(SHORT_MS) is None
    assert looked(*steady(5, 4)).per_s(SHORT_MS) is None, "nor are four seconds"


def test_a_topic_made_anew_has_no_rate_until_it_is_looked_at_again() -> None:
    assert looked(*steady(5, 30), (3, 31)).per_s(LONG_MS) is None
    assert looked(*steady(5, 30), (3, 31), (23, 36)).per_s(LONG_MS) == pytest.approx(4)


def test_what_came_while_nobody_looked_is_spread_over_that_time() -> None:
    partition = looked((0, 0), (0, 1), (600, 61))
    assert partition.per_s(SHORT_MS) == pytest.approx(10)


def test_a_partition_that_stands_still_has_a_rate_of_0() -> None:
    partition = looked(*steady(5, 10), *[(50, second) for second in range(11, 80)])
    assert partition.per_s(SHORT_MS) == 0
    assert partition.per_s(LONG_MS) == 0


def test_the_lanes_rate_is_that_of_its_partitions_together() -> None:
    assert arrivals_per_s([looked(*steady(3, 70)), looked(*steady(4, 70))]) == pytest.approx(7)


def test_a_lane_with_a_partition_unseen_has_no_rate() -> None:
    assert arrivals_per_s([looked(*steady(3, 70)), Arrivals()]) is None


def test_a_burst_is_believed_within_seconds() -> None:
    burst = [(60 + 40 * second, 60 + second) for second in range(1, 4)]
    rate = arrivals_per_s([looked(*steady(1, 60), *burst)])
    assert rate is not None
    assert rate > 20


@pytest.mark.parametrize(
    ("short", "long", "told"),
    [
        (10.0, 8.0, 8.0),
        (16.0, 8.0, 16.0),
        (1.0, 8.0, 1.0),
        (0.2, 0.0, 0.0),
        (0.0, 0.1, 0.1),
        (2.0, 0.1, 2.0),
    ],
    ids=["chance", "a burst", "its end", "the first task", "a pause", "a load after none"],
)
def test_only_what_chance_does_not_explain_is_another_load(short: float, long: float, told: float) -> None:
    assert believable(short, long) == told


def poisson(expected: float) -> list[float]:
    """The probabilities of 0, 1, 2, … arrivals, as far as they matter."""
    most = int(expected + 12 * math.sqrt(expected)) + 20
    return [math.exp(number * math.log(expected) - expected - math.lgamma(number + 1)) for number in range(most)]


@pytest.mark.parametrize(
    ("expected", "looks"), [(1, 1_600), (2, 900), (3, 900), (5, 1_400), (20, 4_600), (2_000, 24_000)]
)
def test_chance_is_taken_for_a_burst_as_rarely_as_is_said(expected: int, looks: int) -> None:
    seconds = SHORT_MS / 1_000
    chance = sum(
        probability
        for number, probability in enumerate(poisson(expected))
        if number > expected and believable(number / seconds, expected / seconds) != expected / seconds
    )
    assert looks <= 1 / chance < 1.1 * looks
