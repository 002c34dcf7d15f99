"""The response and the bill: where the time went, and what it cost."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from schemas.base import RunStatus
from schemas.errors import ErrorCode
from schemas.events import EVENT, StepCompleted
from schemas.graphs import Target
from schemas.usage import StepCost
from services.aggregator.domain.outcomes import Mapped, critical_path, finish, reaches_output, timing, too_large
from services.aggregator.domain.state import Run
from tests.unit.aggregator.log import DIAMOND, T0, Log, graph, model, rejected


def diamond() -> Log:
    """a takes 100 ms, b 40 ms, c 200 ms; c waited 20 ms in its queue and 5 ms for a cold worker."""
    log = Log()
    log.start()
    log.done("b", after_ms=39, service_ms=30.0, task_at=T0 + 5)
    log.done("a", after_ms=60, service_ms=80.0, task_at=T0 + 10)
    log.done("c", after_ms=250, service_ms=200.0, cold_ms=5.0, task_at=T0 + 125)
    return log


def test_the_critical_path_goes_back_through_what_was_waited_for_longest() -> None:
    assert critical_path(diamond().run) == ("a", "c")


def test_the_parts_of_the_time_sum_to_the_total() -> None:
    log = diamond()
    found = timing(log.run, log.now)
    assert found.total_ms == 350
    assert (found.service_ms, found.cold_ms) == (280, 5)
    assert found.queue_ms == (100 - 10 - 80) + (350 - 125 - 200 - 5)
    assert found.queue_ms + found.cold_ms + found.service_ms + found.coordination_ms == pytest.approx(found.total_ms)


def test_a_service_time_longer_than_the_run_is_cut_to_it() -> None:
    log = Log()
    log.start(graph(model("a")))
    log.done("a", service_ms=9_999.0)
    found = timing(log.run, log.now)
    assert (found.service_ms, found.queue_ms, found.coordination_ms) == (found.total_ms, 0, 0)


def test_the_response_tells_each_step_and_the_cost_of_each() -> None:
    finished = finish(diamond().run, Mapped("answer"))
    response, usage = finished.response, finished.usage
    assert response.status is RunStatus.SUCCEEDED
    assert {name: report.attempts for name, report in response.steps.items()} == {"a": 1, "b": 1, "c": 1}
    assert response.usage.cost_usd == usage.cost_usd == 1.5
    assert usage.by_step["c"].input_tokens == 10
    assert response.started_at == "2023-11-14T22:13:20.000Z"
    assert response.finished_at == "2023-11-14T22:13:20.350Z"


def test_the_same_log_gives_the_same_bytes() -> None:
    first, second = (finish(diamond().run, Mapped({"x": 1.5})).model_dump_json() for _ in range(2))
    assert first == second


def test_an_output_that_cannot_be_mapped_fails_the_run() -> None:
    log = diamond()
    finished = finish(log.run, Mapped(error=too_large(600_000, 524_288)))
    assert finished.response.status is finished.usage.status is RunStatus.FAILED
    assert finished.response.error is not None
    assert finished.response.error.code is ErrorCode.CONTENT_TOO_LARGE
    assert finished.response.output is None


def test_only_a_run_that_reached_its_end_has_an_output() -> None:
    log = diamond()
    assert reaches_output(log.run)
    other = Log()
    other.start()
    assert not reaches_output(other.run)
    other.cancel()
    assert not reaches_output(other.run)


def test_a_rejected_run_has_no_path_and_no_steps() -> None:
    log = Log()
    log.append(rejected())
    response = finish(log.run, Mapped()).response
    assert (response.timing.critical_path, response.steps, response.variants) == ((), {}, {})


def test_a_run_that_ends_early_reports_the_steps_as_they_stood() -> None:
    log = Log()
    log.start(DIAMOND)
    log.done("a")
    log.cancel()
    response = finish(log.run, Mapped()).response
    assert {name: report.status.value for name, report in response.steps.items()} == {
        "a": "succeeded",
        "b": "ready",
        "c": "pending",
    }
    assert response.timing.critical_path == ("a",)


@pytest.mark.parametrize("number", ["1e999", "Infinity", "-1", "NaN"])
@pytest.mark.parametrize("name", ["cost_usd", "service_ms", "cold_ms"])
def test_an_event_with_a_number_that_json_has_not_is_no_event(name: str, number: str) -> None:
    event = f'{{"run_id": "r", "tenant": "t", "step": "a", "attempt": 1, "output": {{}}, "{name}": {number}}}'
    with pytest.raises(ValidationError, match=name):
        StepCompleted.model_validate_json(event)


HUGE = 1.5e308


def test_a_bill_that_overflows_leaves_an_outcome_that_can_be_read_back() -> None:
    log = Log()
    log.start(graph(model("a"), model("b")))
    log.done("a", cost_usd=HUGE)
    log.done("b", cost_usd=HUGE)
    outcome = finish(log.run, Mapped("x"))
    assert EVENT.validate_json(EVENT.dump_json(outcome)) == outcome


@pytest.mark.parametrize("name", ["cost_usd", "service_ms"])
def test_an_attempt_that_makes_the_cost_of_its_step_overflow_is_refused_and_changes_nothing(name: str) -> None:
    log = Log()
    log.start(graph(model("a", timeout_ms=1_000, chain=(Target(model_class="llm"), Target(model_class="small")))))
    log.tick(2_500)
    log.partition = log.partition.with_run(charged(log, name))
    before = log.partition
    with pytest.raises(ValidationError, match=name):
        log.done("a", attempt=2, cost_usd=HUGE, service_ms=HUGE)
    assert log.partition is before


def charged(log: Log, name: str) -> Run:
    """The run after its first attempt, which cost as much as a number can say."""
    state = log.run.steps["a"]
    return log.run.step("a", replace(state, cost=StepCost.model_validate({name: HUGE, "attempts": 1})))


def test_an_opening_from_beyond_the_calendar_has_an_outcome() -> None:
    log = Log()
    log.start(log_time=10**18)
    log.cancel()
    outcome = finish(log.run, Mapped())
    assert outcome.response.started_at == "9999-12-31T23:59:59.000Z"
    assert EVENT.validate_json(EVENT.dump_json(outcome)) == outcome
