"""The figures of a load test."""

import pytest

from loadtest.measure import Measurement, PlaneUse, percentile, summary_ms
from schemas.responses import Timing


def test_percentiles_are_nearest_rank() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, percent) for percent in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([3.0], 50) == 3.0
    assert percentile([], 50) == 0.0


def test_summaries_are_in_milliseconds() -> None:
    assert summary_ms([0.001, 0.002, 0.003], 50, 99) == {"p50": 2.0, "p99": 3.0}


def test_throughput_counts_what_completed() -> None:
    measurement = Measurement()
    for number in range(50):
        measurement.record(number / 5, 0.1, True)
    measurement.record(10.0, 0.1, False)
    assert measurement.as_json()["throughput_per_s"] == 5.0
    assert measurement.failed == 1
    assert Measurement().throughput_per_s == 0.0


def test_every_scenario_has_the_same_keys_and_series_for_plots() -> None:
    measurement = Measurement()
    measurement.record(0.5, 0.1, True)
    figures = measurement.as_json()
    series = figures.pop("series")
    assert figures.keys() == {"completed", "failed", "duration_s", "throughput_per_s", "latency_ms"}
    assert figures["latency_ms"].keys() == {"p50", "p95", "p99", "max"}
    assert series.keys() == {"percentiles_ms", "seconds"}


def test_a_run_that_tells_where_its_time_went_has_the_rest_on_its_way() -> None:
    measurement = Measurement()
    for coordination_ms, latency_s in ((8.0, 0.070), (12.0, 0.080)):
        timing = Timing(total_ms=66.0, queue_ms=1.0, service_ms=55.0, coordination_ms=coordination_ms)
        measurement.record(1.0, latency_s, timing)
    assert measurement.as_json()["timing_ms"] == pytest.approx(
        {"queue": 1.0, "cold": 0.0, "service": 55.0, "coordination": 10.0, "client": 9.0}
    )


def test_what_the_plane_took_is_shared_by_the_runs_that_completed() -> None:
    measurement = Measurement(plane=PlaneUse({"kafka": 3.0}, {"kafka": 512.04}, {"at_s": [0.0], "tasks": {}}))
    for _ in range(1_000):
        measurement.record(1.0, 0.1, True)
    figures = measurement.as_json()
    assert figures["cpu_ms_per_run"] == {"kafka": 3.0}
    assert figures["rss_mib"] == {"kafka": 512.0}
    assert figures["series"]["lag"] == {"at_s": [0.0], "tasks": {}}
