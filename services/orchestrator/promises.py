"""What a configuration says of pipelines, as metrics: their names, and the objective by which alerts judge each."""

from collections.abc import Awaitable, Callable, Iterator
from itertools import product

from prometheus_client.utils import floatToGoString

from schemas.base import Priority
from schemas.metrics import (
    REQUESTS_TOTAL,
    SECONDS_BUCKETS,
    SLO_LATENCY_SECONDS,
    SLO_OBJECTIVE,
    SPILLED_TASKS_TOTAL,
)
from schemas.pipelines import SLO
from services.chassis.config.live import LiveConfig
from services.chassis.metrics import Metrics
from services.orchestrator.domain.routing import several_backends


def exposing_promises(metrics: Metrics, live: Callable[[], LiveConfig]) -> Callable[[], Awaitable[bytes]]:
    """The exposition of `metrics` with the promises of the configuration in force. One withdrawn is absent."""
    latency, objective = metrics.gauge(SLO_LATENCY_SECONDS), metrics.gauge(SLO_OBJECTIVE)

    async def exposition() -> bytes:
        latency.clear()
        objective.clear()
        for pipeline, slo in _promises(live()):
            seconds = slo.latency / 1_000
            latency.labels(pipeline, judging_bucket(seconds)).set(seconds)
            objective.labels(pipeline).set(slo.objective)
        return metrics.exposition()

    return exposition


def count_from_zero(metrics: Metrics, live: LiveConfig) -> None:
    """What a configuration makes possible stands at 0 before the first: else Prometheus does not see its increase."""
    names = {pipeline.spec.name for pipeline in live.pipelines}
    metrics.counter(REQUESTS_TOTAL, product(names, Priority))
    metrics.counter(SPILLED_TASKS_TOTAL, several_backends(live.queues))


def judging_bucket(seconds: float) -> str:
    """The `le` of the first bucket of a histogram that does not end before `seconds`: the strictest it can tell."""
    bound = min((bound for bound in SECONDS_BUCKETS if bound >= seconds), default=float("inf"))
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]


def _promises(live: LiveConfig) -> Iterator[tuple[str, SLO]]:
    """Those of each pipeline's highest version: the metrics of runs name no version."""
    for name in {pipeline.spec.name for pipeline in live.pipelines}:
        newest = live.pipeline(name)
        if newest is not None and newest.spec.slo is not None:
            yield name, newest.spec.slo
