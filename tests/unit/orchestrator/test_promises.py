"""What pipelines promise is exposed as it stands in the configuration in force."""

from typing import Any

import pytest

from schemas.config import Bundle
from services.chassis.config.live import LiveConfig
from services.chassis.metrics import Metrics
from services.orchestrator.promises import count_from_zero, exposing_promises, judging_bucket

FIVE_SECONDS = {"latency": "5s", "objective": 0.99}
TWO_SECONDS = {"latency": "2s", "objective": 0.9}


def live(*pipelines: tuple[str, int, dict[str, Any] | None]) -> LiveConfig:
    written = [
        {"name": name, "version": version, "steps": [{"id": "a", "value": 1}], "output": 1, "slo": slo}
        for name, version, slo in pipelines
    ]
    return LiveConfig(1, Bundle.model_validate({"pipelines": written}))


async def exposed(*configs: LiveConfig) -> set[str]:
    """What stands there after the last of them, of promises."""
    turns = iter(configs)
    exposition = exposing_promises(Metrics(), lambda: next(turns))
    for _ in configs:
        page = await exposition()
    return {line for line in page.decode().splitlines() if line.startswith("headway_slo")}


async def test_a_promise_is_told_in_seconds_with_the_bucket_that_judges_it() -> None:
    assert await exposed(live(("ask", 1, FIVE_SECONDS), ("sales", 1, TWO_SECONDS), ("embed", 1, None))) == {
        'headway_slo_latency_seconds{bucket="5.0",pipeline="ask"} 5.0',
        'headway_slo_objective{pipeline="ask"} 0.99',
        'headway_slo_latency_seconds{bucket="2.5",pipeline="sales"} 2.0',
        'headway_slo_objective{pipeline="sales"} 0.9',
    }


async def test_the_highest_version_speaks_for_the_pipeline() -> None:
    found = await exposed(live(("ask", 10, TWO_SECONDS), ("ask", 9, FIVE_SECONDS)))
    assert 'headway_slo_objective{pipeline="ask"} 0.9' in found
    assert len(found) == 2


async def test_a_promise_that_is_withdrawn_is_gone() -> None:
    assert await exposed(live(("ask", 1, FIVE_SECONDS)), live(("ask", 2, None))) == set()


def test_requests_of_every_pipeline_and_priority_are_counted_from_zero() -> None:
    metrics = Metrics()
    count_from_zero(metrics, live(("ask", 1, None), ("ask", 2, None), ("sales", 1, None)))
    lines = metrics.exposition().decode().splitlines()
    assert {line for line in lines if line.startswith("headway_requests_total")} == {
        f'headway_requests_total{{pipeline="{pipeline}",priority="{priority}"}} 0.0'
        for pipeline in ("ask", "sales")
        for priority in ("interactive", "standard", "batch")
    }


def test_spilled_tasks_are_counted_from_zero_where_a_class_has_several_backends() -> None:
    metrics = Metrics()
    engine = {"kind": "simulated"}
    classes = {
        "embedding": {"backends": [{"name": "local", "engine": engine}]},
        "llm": {"backends": [{"name": "local", "engine": engine}, {"name": "burst", "engine": engine}]},
    }
    count_from_zero(metrics, LiveConfig(1, Bundle.model_validate({"model_classes": classes})))
    lines = metrics.exposition().decode().splitlines()
    assert {line for line in lines if line.startswith("headway_spilled_tasks_total")} == {
        f'headway_spilled_tasks_total{{backend="{backend}",model_class="llm"}} 0.0' for backend in ("local", "burst")
    }


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(5, "5.0"), (2, "2.5"), (0.0001, "0.001"), (300, "300.0"), (301, "+Inf")]
)
def test_the_strictest_bucket_that_is_not_too_strict_judges(seconds: float, bucket: str) -> None:
    assert judging_bucket(seconds) == bucket
