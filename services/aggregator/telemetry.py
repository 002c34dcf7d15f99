"""What the aggregator tells people of runs that are over: metrics, and one canonical line each."""

from collections.abc import Collection
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from prometheus_client import Counter, Histogram

from schemas.base import RunStatus
from schemas.events import RunFinished
from schemas.metrics import RESPONSES_TOTAL, RUN_COMPONENT_SECONDS, RUN_SECONDS
from schemas.responses import Timing
from services.chassis.logging import canonical
from services.chassis.metrics import Metrics

UNKNOWN = "unknown"
COMPONENTS = ("queue", "cold", "service", "coordination")
MAX_SERIES = 1_024


class _Series(NamedTuple):
    """Of one pipeline and status."""

    responses: Counter
    seconds: Histogram
    components: tuple[Histogram, ...]


class Telemetry:
    """Counts, times and lines; a child is looked up once for each pipeline and status."""

    def __init__(self, metrics: Metrics) -> None:
        responses, seconds = metrics.counter(RESPONSES_TOTAL), metrics.histogram(RUN_SECONDS)
        components = metrics.histogram(RUN_COMPONENT_SECONDS)

        @lru_cache(MAX_SERIES)
        def series(pipeline: str, status: str) -> _Series:
            parts = tuple(components.labels(pipeline, component) for component in COMPONENTS)
            return _Series(responses.labels(pipeline, status), seconds.labels(pipeline, status), parts)

        self._series = series

    def finished(self, finished: RunFinished) -> None:
        """A run's outcome is in the log."""
        response, timing = finished.response, finished.response.timing
        # The name in a rejected request is a client's text, and no label.
        pipeline = response.pipeline if response.pipeline_version is not None else UNKNOWN
        series = self._series(pipeline, response.status)
        series.responses.inc()
        series.seconds.observe(timing.total_ms / 1_000)
        for component, milliseconds in zip(series.components, _parts(timing), strict=True):
            component.observe(milliseconds / 1_000)
        canonical(
            "run_finished",
            run_id=finished.run_id,
            tenant=finished.tenant,
            pipeline=pipeline,
            status=response.status,
            error=response.error.code if response.error else None,
            total_ms=timing.total_ms,
            coordination_ms=timing.coordination_ms,
            cost_usd=finished.usage.cost_usd,
        )


def count_from_zero(metrics: Metrics, pipelines: Collection[str]) -> None:
    """What runs of these may come to stands at 0 before the first: else Prometheus does not see its increase.

    Times only of those that succeed: a page of histograms that stay empty would hold up the join at every scrape
    (200 pipelines: 0.6 s).
    """
    metrics.counter(RESPONSES_TOTAL, product(pipelines, RunStatus))
    seconds = metrics.histogram(RUN_SECONDS)
    for pipeline in pipelines:
        seconds.labels(pipeline, RunStatus.SUCCEEDED)


def _parts(timing: Timing) -> tuple[float, ...]:
    """In the order of COMPONENTS, in milliseconds."""
    return timing.queue_ms, timing.cold_ms, timing.service_ms, timing.coordination_ms
