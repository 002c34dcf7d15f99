"""Latencies in a histogram: three digits, bounded memory."""

import pytest

from loadtest.latencies import LONGEST_S, Latencies


def of(*seconds: float) -> Latencies:
    found = Latencies()
    for each in seconds:
        found.record(each)
    return found


@pytest.mark.parametrize("seconds", [1e-6, 0.000_123, 0.012_345, 1.234_5, 67.89, 299.9])
def test_a_latency_keeps_three_digits(seconds: float) -> None:
    values = of(*(seconds * (1 + number / 1_000) for number in range(1_000)))
    assert values.percentile(50) == pytest.approx(min(LONGEST_S, seconds * 1.499), rel=1e-3, abs=1e-6)


def test_percentiles_are_nearest_rank() -> None:
    hundred = of(*(number / 1_000 for number in range(1, 101)))
    assert hundred.summary_ms(50, 95, 99, 100) == {"p50": 50.015, "p95": 95.039, "p99": 99.007, "p100": 100.0}
    assert len(hundred) == 100
    assert hundred.mean_s == pytest.approx(0.0505)
    assert hundred.max_s == 0.1


def test_what_is_taken_off_may_leave_less_than_nothing() -> None:
    assert of(0.050, 0.050, 0.070).summary_ms(50, less_ms=55.0)["p50"] == pytest.approx(-5.0, abs=0.05)


def test_nothing_has_no_latency() -> None:
    nothing = Latencies()
    assert nothing.summary_ms(50, 99) == {"p50": 0.0, "p99": 0.0}
    assert nothing.curve_ms() == []
    assert nothing.mean_s == nothing.max_s == 0.0


def test_what_is_out_of_range_is_counted_at_its_end() -> None:
    assert of(LONGEST_S + 1).max_s == LONGEST_S
    assert of(-0.5).percentile(50) == 0.0


def test_a_curve_ends_where_single_values_begin() -> None:
    percents = [percent for percent, _ in of(*(0.01 for _ in range(1_000))).curve_ms()]
    assert percents[0] == 0
    assert percents[-1] == 99.9
    assert percents == sorted(percents)


def test_latencies_taken_together_are_as_if_recorded_together() -> None:
    first, second = of(0.001, 0.002), of(0.003, 0.004)
    first.add(second)
    assert first.summary_ms(50, 100) == of(0.001, 0.002, 0.003, 0.004).summary_ms(50, 100)
    assert first.mean_s == pytest.approx(0.0025)
