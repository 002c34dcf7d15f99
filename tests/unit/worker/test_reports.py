import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Output, Priority
from schemas.errors import ErrorCode
from schemas.tasks import InferenceTask, Price
from schemas.usage import TokenUsage
from services.worker.domain.costs import cost_usd
from services.worker.domain.reports import completed, effort, error_detail, failed, undecodable

TASK = InferenceTask(
    run_id="r1", tenant="acme", traceparent="00-a-b-01", task_id="r1/answer#2", pipeline="ask", step="answer",
    attempt=2, fallback=1, model_class="llm", backend="local", lane=Priority.STANDARD, deadline_at=9_000,
    step_deadline_at=8_000,
    price=Price(replica_hour_usd=3.6, input_per_mtok_usd=2, output_per_mtok_usd=10, call_usd=1),
)  # fmt: skip
USED = TokenUsage(input_tokens=1_000_000, cached_tokens=500_000, output_tokens=100_000)
TOOK = effort(task_at=1_000, started_at=1_030, ready_at=1_020, service_ms=1_000, usage=USED)
RUN = "0" * 8 + "-0000-0000-0000-" + "0" * 12


def test_cost_adds_tokens_the_call_and_a_slots_share_of_the_replica() -> None:
    assert cost_usd(TASK.price, USED, 1_000, slots=4) == pytest.approx(2 + 1 + 1 + 0.00025)


def test_a_free_backend_costs_nothing() -> None:
    assert cost_usd(Price(), USED, 1_000, slots=1) == 0


def test_a_completed_step_says_what_it_took() -> None:
    event = completed(TASK, TOOK, Output(value={"text": "x"}), slots=4)
    assert (event.run_id, event.step, event.attempt, event.fallback) == ("r1", "answer", 2, 1)
    assert (event.model_class, event.backend, event.traceparent) == ("llm", "local", "00-a-b-01")
    assert (event.task_at, event.service_ms, event.cold_ms) == (1_000, 1_000, 20)
    assert event.usage == USED
    assert event.cost_usd == pytest.approx(4.00025)


def test_a_failure_in_the_engine_is_paid() -> None:
    event = failed(TASK, TOOK, error_detail("answer", ErrorCode.ENGINE_FAILED, "broke", retryable=True), slots=4)
    assert event.error.retryable
    assert event.error.step == "answer"
    assert event.cost_usd == pytest.approx(4.00025)


def test_a_task_that_never_reached_the_engine_is_free() -> None:
    error = error_detail("answer", ErrorCode.DEADLINE_EXCEEDED, "late")
    assert failed(TASK, effort(1_000, 2_000, 0), error, slots=4).cost_usd == 0


def test_an_error_message_is_one_bounded_line() -> None:
    message = error_detail("answer", ErrorCode.INTERNAL, "two\n lines" + "x" * 1_000).message
    assert message.startswith("two linesx")
    assert len(message) == 500


@given(*[st.integers(0, 10**6)] * 3)
def test_the_cold_part_lies_within_the_queue(task_at: int, started_at: int, ready_at: int) -> None:
    took = effort(task_at, started_at, ready_at)
    assert 0 <= took.cold_ms <= took.queue_ms == max(0, started_at - task_at)


def test_cold_time_ends_when_the_engine_is_ready() -> None:
    assert effort(task_at=1_000, started_at=1_500, ready_at=1_400).cold_ms == 400
    assert effort(task_at=1_000, started_at=1_500, ready_at=900).cold_ms == 0


def test_an_unreadable_task_fails_by_its_header() -> None:
    event = undecodable(f"{RUN}/map[3]#2", "acme", 1_000, "not JSON")
    assert event is not None
    assert (event.run_id, event.step, event.attempt, event.tenant) == (RUN, "map[3]", 2, "acme")
    assert event.error.code is ErrorCode.INTERNAL
    assert not event.error.retryable


@pytest.mark.parametrize("task_id", [None, "", "answer", f"{RUN}/answer", f"{RUN}/a#0", f"{RUN}/{'a' * 300}#1"])
def test_a_header_that_names_no_task_is_not_believed(task_id: str | None) -> None:
    assert undecodable(task_id, "acme", 1_000, "") is None


@pytest.mark.parametrize("tenant", [None, "", "x" * 257])
def test_an_unreadable_task_of_nobody_has_no_event(tenant: str | None) -> None:
    assert undecodable(f"{RUN}/a#1", tenant, 1_000, "") is None
