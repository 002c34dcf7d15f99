"""Measurements that were made apart, taken together."""

from loadtest.measure import SERIES, Measurement
from loadtest.pool import Pool, ratio


def _measurement(latencies_s: list[float], failed: int = 0) -> Measurement:
    measurement = Measurement()
    for number, latency_s in enumerate(latencies_s):
        measurement.record(number + 0.5, latency_s, True)
    for _ in range(failed):
        measurement.record(len(latencies_s), 1.0, False)
    return measurement


def test_percentiles_are_over_all_of_them() -> None:
    pool = Pool([_measurement([0.001] * 98), _measurement([0.1, 0.1])])
    assert len(pool.latencies) == 100
    assert 99 <= pool.p99_ms <= 101
    assert Pool([_measurement([0.001] * 98)]).p99_ms < 1.1


def test_counts_and_times_add_up_and_seconds_follow_each_other() -> None:
    figures = Pool([_measurement([0.01, 0.01], failed=1), _measurement([0.01])]).as_json()
    assert figures["completed"] == 3
    assert figures["failed"] == 1
    assert figures["duration_s"] == 2.5
    assert figures["throughput_per_s"] == 1.2
    assert figures[SERIES]["seconds"]["completed"] == [1, 1, 0, 1]


def test_a_ratio_to_nothing_is_none() -> None:
    assert ratio(3.0, 2.0) == 1.5
    assert ratio(3.0, 0.0) is None
