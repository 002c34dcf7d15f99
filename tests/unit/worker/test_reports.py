import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import headers
from schemas.base import Output, Priority
from schemas.errors import ErrorCode
from schemas.tasks import InferenceTask, Price
from schemas.usage import TokenUsage
from services.worker.domain.costs import cost_usd
from services.worker.domain.reports import Effort, completed, error_detail, failed, undecodable, waited

TASK = InferenceTask(
    run_id="r1", tenant="acme", traceparent="00-a-b-01", task_id="r1/answer#2", pipeline="ask", step="answer",
    attempt=2, fallback=1, model_class="llm", backend="local", lane=Priority.STANDARD, deadline_at=9_000,
    step_deadline_at=8_000,
    price=Price(replica_hour_usd=3.6, input_per_mtok_usd=2, output_per_mtok_usd=10, call_usd=1),
)  # fmt: skip
USED = TokenUsage(input_tokens=1_000_000, cached_tokens=500_000, output_tokens=100_000)
EFFORT = Effort(task_at=1_000, queue_ms=30, cold_ms=20, service_ms=1_000, usage=USED)
NAMED = {headers.TASK_ID: "r1/map[3]#2", headers.TENANT: "acme"}


def test_cost_adds_tokens_the_call_and_a_slots_share_of_the_replica() -> None:
    assert cost_usd(TASK.price, USED, 1_000, slots=4) == pytest.approx(2 + 1 + 1 + 0.00025)


def test_a_free_backend_costs_nothing() -> None:
    assert cost_usd(Price(), USED, 1_000, slots=1) == 0


def test_a_completed_step_says_what_it_took() -> None:
    event = completed(TASK, EFFORT, Output(value={"text": "x"}), slots=4)
    assert (event.run_id, event.step, event.attempt, event.fallback) == ("r1", "answer", 2, 1)
    assert (event.model_class, event.backend, event.traceparent) == ("llm", "local", "00-a-b-01")
    assert (event.task_at, event.service_ms, event.cold_ms) == (1_000, 1_000, 20)
    assert event.usage == USED
    assert event.cost_usd == pytest.approx(4.00025)


def test_a_failure_in_the_engine_is_paid() -> None:
    event = failed(TASK, EFFORT, error_detail("answer", ErrorCode.ENGINE_FAILED, "broke", retryable=True), slots=4)
    assert event.error.retryable
    assert event.error.step == "answer"
    assert event.cost_usd == pytest.approx(4.00025)


def test_a_task_that_never_reached_the_engine_is_free() -> None:
    error = error_detail("answer", ErrorCode.DEADLINE_EXCEEDED, "late")
    assert failed(TASK, Effort(task_at=1_000), error, slots=4).cost_usd == 0


def test_an_error_message_is_one_bounded_line() -> None:
    message = error_detail("answer", ErrorCode.INTERNAL, "two\n lines" + "x" * 1_000).message
    assert message.startswith("two linesx")
    assert len(message) == 500


@given(*[st.integers(0, 10**6)] * 3)
def test_the_cold_part_lies_within_the_queue(task_at: int, started_at: int, ready_at: int) -> None:
    effort = waited(task_at, started_at, ready_at)
    assert 0 <= effort.cold_ms <= effort.queue_ms == max(0, started_at - task_at)


def test_cold_time_ends_when_the_engine_is_ready() -> None:
    assert waited(task_at=1_000, started_at=1_500, ready_at=1_400).cold_ms == 400
    assert waited(task_at=1_000, started_at=1_500, ready_at=900).cold_ms == 0


def test_an_unreadable_task_fails_by_its_header() -> None:
    event = undecodable(NAMED, 1_000, "not JSON")
    assert event is not None
    assert (event.run_id, event.step, event.attempt, event.tenant) == ("r1", "map[3]", 2, "acme")
    assert event.error.code is ErrorCode.INTERNAL
    assert not event.error.retryable


@pytest.mark.parametrize(
    "task_id",
    ["", "r1/answer", "r1#1", "/answer#1", "r1/#1", "r1/a#x", "r1/a#0", "r1/a#-1", "r1/a#²", "r1/a#" + "9" * 10],
)
def test_a_header_that_names_no_task_is_not_believed(task_id: str) -> None:
    assert undecodable({**NAMED, headers.TASK_ID: task_id}, 1_000, "") is None


def test_an_unreadable_task_of_nobody_has_no_event() -> None:
    assert undecodable({headers.TASK_ID: "r1/a#1"}, 1_000, "") is None
