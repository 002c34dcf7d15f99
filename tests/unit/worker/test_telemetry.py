"""What people are told of a step's time: each component of each attempt, once."""

import re

from schemas.base import Output, Priority
from schemas.errors import ErrorCode
from schemas.models import ModelClass, queues
from schemas.pipelines import PipelineSpec
from schemas.tasks import Price
from schemas.usage import TokenUsage
from services.chassis.metrics import Metrics
from services.worker.domain.reports import completed, effort, error_detail, failed
from services.worker.domain.slots import Slots
from services.worker.telemetry import Telemetry, count_from_zero
from tests.unit.worker.test_reports import TASK

LLM = ModelClass.model_validate({"backends": [{"name": "local", "engine": {"kind": "simulated"}}]})
SAMPLE = re.compile(r'headway_step_seconds_total\{backend="local",component="(\w+)",model_class="llm"'
                    r',pipeline="ask",step="answer"\} (.+)')  # fmt: skip


def seconds_by_component(metrics: Metrics) -> dict[str, float]:
    found = (SAMPLE.fullmatch(line) for line in metrics.exposition().decode().splitlines())
    return {match[1]: float(match[2]) for match in found if match}


def test_a_step_is_told_where_its_attempts_spent_their_time() -> None:
    metrics, (queue,) = Metrics(), queues({"llm": LLM})
    telemetry = Telemetry(queue, Slots(4), metrics)
    slow = effort(task_at=1_000, started_at=3_500, ready_at=3_000, service_ms=250)
    telemetry.ended(TASK, completed(TASK, slow, Output(value={}), slots=4), slow)
    assert seconds_by_component(metrics) == {"queue": 0.5, "cold": 2.0, "service": 0.25}
    again = effort(task_at=9_000, started_at=9_250, ready_at=0, service_ms=1_000)
    error = error_detail("answer", ErrorCode.ENGINE_FAILED, "broke", retryable=True)
    telemetry.ended(TASK, failed(TASK, again, error, slots=4), again)
    assert seconds_by_component(metrics) == {"queue": 0.75, "cold": 2.0, "service": 1.25}


def test_a_prompt_that_is_sent_again_is_told() -> None:
    metrics, (queue,) = Metrics(), queues({"llm": LLM})
    telemetry = Telemetry(queue, Slots(4), metrics)
    used = TokenUsage(input_tokens=100, cached_tokens=40, output_tokens=7)
    for task in (TASK.model_copy(update={"attempt": 1}), TASK.model_copy(update={"attempt": 2})):
        took = effort(task_at=1_000, started_at=1_000, ready_at=0, service_ms=10, usage=used)
        telemetry.ended(task, completed(task, took, Output(value={}), slots=4), took)
    kinds = re.findall(r'headway_tokens_total\{kind="(\w+)",.*\} (.+)', metrics.exposition().decode())
    assert {kind: float(count) for kind, count in kinds} == {"input": 200, "cached": 80, "resent": 100, "output": 14}


def test_free_slots_cost_what_busy_ones_do() -> None:
    """Half an hour of a replica of 3.6 dollars an hour, a quarter of it at work."""
    priced = LLM.model_copy(
        update={"backends": (LLM.backends[0].model_copy(update={"price": Price(replica_hour_usd=3.6)}),)}
    )
    metrics, (queue,), slots = Metrics(), queues({"llm": priced}), Slots(4)
    telemetry = Telemetry(queue, slots, metrics)
    slots.take(Priority.INTERACTIVE)
    slots.total = 2  # the engine can take no more just now, which makes the replica no cheaper
    telemetry.idled(1_800)
    told = metrics.exposition().decode()
    assert 'headway_cost_usd_total{kind="idle",model_class="llm",pipeline=""} 1.35' in told
    assert 'headway_slots{backend="local",model_class="llm"} 2.0' in told


def pipeline(name: str, *steps: dict[str, object]) -> PipelineSpec:
    return PipelineSpec.model_validate({"name": name, "steps": steps, "output": 1})


def test_what_pipelines_may_send_is_counted_from_zero() -> None:
    """Also what comes only as a fallback; and nothing of pipelines that never ask this class."""
    metrics, (queue,) = Metrics(), queues({"llm": LLM})
    own = pipeline("ask", {"id": "answer", "model_class": "llm"}, {"id": "embed", "model_class": "embedding"})
    fallback = pipeline("sql", {"id": "query", "model_class": "sql", "fallback": [{"model_class": "llm"}]})
    other = pipeline("search", {"id": "embed", "model_class": "embedding"})
    count_from_zero(metrics, queue, [own, fallback, other])
    lines = metrics.exposition().decode().splitlines()
    counted = [line for line in lines if line.startswith(("headway_cost", "headway_tokens", "headway_step"))]
    assert {line.rpartition(" ")[2] for line in counted} == {"0.0"}
    assert {found[1] for line in counted if (found := re.search(r'pipeline="(\w+)"', line))} == {"ask", "sql"}
    assert {found[1] for line in counted if (found := re.search(r'step="(\w+)"', line))} == {"answer", "query"}
    assert 'headway_cost_usd_total{kind="busy",model_class="llm",pipeline="ask"} 0.0' in counted
    assert 'headway_tokens_total{kind="cached",model_class="llm",pipeline="sql"} 0.0' in counted


def test_a_replica_that_sleeps_costs_a_tenth() -> None:
    priced = LLM.model_copy(
        update={"backends": (LLM.backends[0].model_copy(update={"price": Price(replica_hour_usd=3.6)}),)}
    )
    metrics, (queue,) = Metrics(), queues({"llm": priced})
    Telemetry(queue, Slots(4), metrics).idled(1_800, asleep=True)
    assert 'headway_cost_usd_total{kind="idle",model_class="llm",pipeline=""} 0.18' in metrics.exposition().decode()


def test_a_start_is_counted_by_what_it_began_from() -> None:
    metrics, (queue,) = Metrics(), queues({"llm": LLM})
    telemetry = Telemetry(queue, Slots(4), metrics)
    telemetry.started(4.0, "zero")
    telemetry.started(0.5, "asleep")
    page = metrics.exposition().decode()
    for origin, seconds in (("zero", 4.0), ("asleep", 0.5)):
        labels = f'{{backend="local",from="{origin}",model_class="llm"}}'
        assert f"headway_cold_start_seconds_sum{labels} {seconds}" in page
