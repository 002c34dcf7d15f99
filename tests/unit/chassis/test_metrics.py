"""Collectors are made from the list, once, and exposed only when a process asks for them."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from schemas.metrics import METRICS, OPEN_RUNS, REQUESTS_TOTAL, RUN_SECONDS, Metric
from services.chassis.metrics import Metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Of a sample as a scraper reads it; None: absent."""
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            if (sample.name, sample.labels) == (name, labels):
                return sample.value
    return None


def test_a_counter_with_known_labels_stands_at_zero_before_its_first_event() -> None:
    metrics = Metrics()
    metrics.counter(REQUESTS_TOTAL, known=[("ask", "batch"), ("ask", "standard")])
    assert value(metrics, "headway_requests_total", pipeline="ask", priority="batch") == 0


def test_asking_twice_gives_the_same_collector() -> None:
    metrics = Metrics()
    metrics.counter(REQUESTS_TOTAL).labels("ask", "batch").inc()
    metrics.counter(REQUESTS_TOTAL).labels("ask", "batch").inc(2)
    assert value(metrics, "headway_requests_total", pipeline="ask", priority="batch") == 3


def test_a_histogram_reaches_300_seconds() -> None:
    metrics = Metrics()
    metrics.histogram(RUN_SECONDS).labels("ask", "succeeded").observe(299)
    counted = {
        le: value(metrics, "headway_run_seconds_bucket", pipeline="ask", status="succeeded", le=le)
        for le in ("120.0", "300.0")
    }
    assert counted == {"120.0": 0, "300.0": 1}


def test_a_gauge_that_cannot_be_read_is_absent() -> None:
    metrics = Metrics()
    metrics.gauge(OPEN_RUNS).labels("3").set(7)
    assert value(metrics, "headway_open_runs", partition="3") == 7
    metrics.gauge(OPEN_RUNS).remove("3")
    assert value(metrics, "headway_open_runs", partition="3") is None


def test_a_process_exposes_its_memory_and_nothing_it_did_not_ask_for() -> None:
    metrics = Metrics()
    assert (value(metrics, "process_resident_memory_bytes") or 0) > 1 << 20
    assert b"headway_" not in metrics.exposition()


def test_two_processes_in_one_test_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first.counter(REQUESTS_TOTAL).labels("ask", "batch").inc()
    second.counter(REQUESTS_TOTAL)
    assert value(second, "headway_requests_total", pipeline="ask", priority="batch") is None


def test_a_metric_is_only_made_as_what_the_list_says() -> None:
    with pytest.raises(AssertionError, match="is a counter"):
        Metrics().gauge(REQUESTS_TOTAL)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric.name))
def test_every_metric_of_the_list_can_be_made(metric: Metric) -> None:
    metrics = Metrics()
    child = getattr(metrics, metric.kind)(metric)
    if metric.labels:
        child.labels(*("x" for _ in metric.labels))
    assert metric.name.removesuffix("_total") in metrics.exposition().decode()
