"""Prometheus collectors made from the one list in `schemas.metrics`."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from schemas.metrics import SECONDS_BUCKETS, Metric

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, read by nobody

_Collector = TypeVar("_Collector", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one process, in a registry of their own: what it never asks for is not exposed.

    `metrics.counter(REQUESTS_TOTAL).labels("ask", "batch").inc()`; labels in the order of the list. A child is made
    once and then found by its labels (1 µs); keep it where that counts.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._made: dict[Metric, Any] = {}
        ProcessCollector(registry=self._registry)

    def counter(self, metric: Metric, known: Iterable[Sequence[str]] = ()) -> Counter:
        """A counter; `known` label values stand at 0 from the start, so that their first event is an increase."""
        counter = self._collector(Counter, metric)
        for values in known:
            counter.labels(*values)
        return counter

    def gauge(self, metric: Metric) -> Gauge:
        """A gauge. Remove a child whose value cannot be read any more: absent is true, 0 is not."""
        return self._collector(Gauge, metric)

    def histogram(self, metric: Metric) -> Histogram:
        """A histogram of seconds, up to 300."""
        return self._collector(Histogram, metric, buckets=SECONDS_BUCKETS)

    def exposition(self) -> bytes:
        """Everything, in Prometheus's text format."""
        return generate_latest(self._registry)

    def _collector(self, cls: type[_Collector], metric: Metric, **more: Any) -> _Collector:
        if metric not in self._made:
            assert metric.kind == cls.__name__.lower(), f"{metric.name} is a {metric.kind}"
            self._made[metric] = cls(metric.name, metric.help, metric.labels, registry=self._registry, **more)
        made: _Collector = self._made[metric]
        return made
