"""What people are told of a step's time: each component of each attempt, once."""

import re

from schemas.base import Output
from schemas.errors import ErrorCode
from schemas.models import ModelClass, queues
from services.chassis.metrics import Metrics
from services.worker.domain.reports import completed, effort, error_detail, failed
from services.worker.domain.slots import Slots
from services.worker.telemetry import Telemetry
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
