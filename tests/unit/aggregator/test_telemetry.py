"""What runs have come to is counted from 0, and as their responses say."""

from prometheus_client.parser import text_string_to_metric_families

from schemas.base import RunStatus
from services.aggregator.domain.outcomes import Mapped, finish
from services.aggregator.telemetry import Telemetry, count_from_zero
from services.chassis.metrics import Metrics
from tests.unit.aggregator.log import T0, Log, graph, model


def samples(metrics: Metrics, name: str, *by: str) -> dict[tuple[str, ...], float]:
    """The values of one series by these labels."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    found = [sample for family in families for sample in family.samples if sample.name == name]
    return {tuple(sample.labels[label] for label in by): sample.value for sample in found}


def test_every_way_a_run_may_end_stands_at_zero_before_the_first_one() -> None:
    metrics = Metrics()
    count_from_zero(metrics, ["ask", "sales"])
    ends = {(pipeline, status.value): 0.0 for pipeline in ("ask", "sales") for status in RunStatus}
    assert samples(metrics, "headway_responses_total", "pipeline", "status") == ends
    times = samples(metrics, "headway_run_seconds_count", "pipeline", "status")
    assert times == {("ask", "succeeded"): 0.0, ("sales", "succeeded"): 0.0}


def test_a_run_is_counted_once_with_the_times_of_its_response() -> None:
    metrics, log = Metrics(), Log()
    count_from_zero(metrics, ["ask"])
    log.start(graph(model("a")))
    log.done("a", after_ms=399, service_ms=250.0, cold_ms=50.0, task_at=T0 + 80)
    Telemetry(metrics).finished(finish(log.run, Mapped("answer")))
    assert samples(metrics, "headway_responses_total", "status")[("succeeded",)] == 1.0
    assert samples(metrics, "headway_run_seconds_sum", "status")[("succeeded",)] == 0.4
    assert samples(metrics, "headway_run_component_seconds_sum", "component") == {
        ("queue",): 0.02,
        ("cold",): 0.05,
        ("service",): 0.25,
        ("coordination",): 0.08,
    }
