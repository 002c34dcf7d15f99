"""The join, one rule a test: what the fold decides for a log written by hand."""

import pytest

from schemas.base import RunStatus, StepStatus
from schemas.errors import DeadLetterReason, ErrorCode
from schemas.graphs import Graph, OnFailure, Step, StepKind, Target
from services.aggregator.domain.decisions import DeadLetter, Dispatch, Finish, Publish
from services.aggregator.domain.fold import FoldTooOldError, LogRecord, fold
from services.aggregator.domain.outcomes import Mapped, finish
from services.aggregator.domain.state import FINISH_AGAIN_MS, MAX_PLANS, STEP_TIMEOUT_GRACE_MS, Run
from tests.unit.aggregator.log import (
    DEADLINE_MS,
    DIAMOND,
    OPTIONAL,
    T0,
    WINDOW_MS,
    Log,
    dispatched,
    gate,
    graph,
    model,
    only,
    rejected,
    started,
)


def test_a_started_run_dispatches_the_steps_that_need_nothing() -> None:
    assert dispatched(Log().start()) == ["a#1", "b#1"]


def test_a_step_is_dispatched_when_the_last_of_its_needs_is_over() -> None:
    log = Log()
    log.start()
    assert dispatched(log.done("b")) == []
    assert dispatched(log.done("a")) == ["c#1"]


def test_a_ready_step_carries_the_outputs_it_reads_and_no_chain() -> None:
    log = Log()
    log.start()
    log.done("a", "A")
    (dispatch,) = only(Dispatch, log.done("b", "B"))
    assert {name: output.value for name, output in dispatch.ready.outputs.items()} == {"a": "A", "b": "B"}
    assert dispatch.ready.step.chain == ()
    assert dispatch.ready.ready_at == log.now


def test_a_step_that_reads_no_input_is_not_sent_it() -> None:
    (dispatch,) = only(Dispatch, Log().start(graph(model("a", reads_input=False))))
    assert dispatch.ready.input is None


def test_a_run_whose_steps_are_all_over_finishes_once() -> None:
    log = Log()
    log.start()
    for step in "abc":
        decided = log.done(step)
    assert only(Finish, decided)
    assert log.status is RunStatus.SUCCEEDED
    assert len(only(Finish, tuple(log.decisions))) == 1


def test_the_response_is_published_only_from_the_outcome_in_the_log() -> None:
    log = Log()
    log.start()
    for step in "abc":
        log.done(step)
    assert not only(Publish, tuple(log.decisions))
    (publish,) = only(Publish, log.finish())
    assert publish.finished.response.output == {"answer": 42}
    assert publish.deadline_at == T0 + DEADLINE_MS
    assert log.run_id not in log.partition.open


def test_the_first_outcome_in_the_log_wins() -> None:
    log = Log()
    log.start()
    log.cancel()
    first, second = finish(log.run, Mapped()), finish(log.run, Mapped({"other": 1}))
    assert only(Publish, log.append(first))
    assert log.append(second) == ()


def test_an_outcome_counts_whatever_its_stamp_and_whatever_the_run_was_doing() -> None:
    log = Log()
    log.start()
    running = log.run
    log.cancel()
    outcome = finish(log.run, Mapped())
    log.partition = log.partition.with_run(running)
    (publish,) = only(Publish, log.append(outcome, DEADLINE_MS * 2))
    assert publish.deadline_at == T0 + DEADLINE_MS


def test_a_closing_run_ignores_everything_but_its_outcome() -> None:
    log = Log()
    log.start()
    log.cancel()
    assert log.done("a") == ()
    assert log.cancel() == ()
    assert log.tick(FINISH_AGAIN_MS - 10) == ()
    assert log.status is RunStatus.CANCELLED


def test_an_outcome_that_never_came_is_asked_for_again_unchanged() -> None:
    log = Log()
    log.start()
    log.cancel()
    first = log.run.outcome
    (again,) = only(Finish, log.tick(FINISH_AGAIN_MS))
    assert first is not None
    assert again.run.outcome is not None
    assert (again.run.outcome.status, again.run.outcome.decided_at) == (first.status, first.decided_at)
    assert log.tick(FINISH_AGAIN_MS - 10) == ()
    assert only(Finish, log.tick(10))


# Identity -------------------------------------------------------------------------------------


def test_the_same_request_again_is_the_same_run() -> None:
    log = Log()
    log.start()
    assert log.start() == ()
    log.cancel()
    log.finish()
    assert log.start() == ()


def test_a_run_is_not_refused_after_it_has_started() -> None:
    """A batch of requests is delivered again, and now the plane is too full for it: what was admitted stays so."""
    log = Log()
    log.start()
    before = log.partition
    assert log.append(rejected()) == ()
    assert log.partition == before
    for step in "abc":
        log.done(step)
    (publish,) = only(Publish, log.finish())
    assert publish.finished.response.status is RunStatus.SUCCEEDED
    assert log.append(rejected()) == ()
    assert log.run_id not in log.partition.open


def test_a_refused_run_does_not_start_after_all() -> None:
    log = Log()
    assert only(Finish, log.append(rejected()))
    assert log.start() == ()
    assert log.status is RunStatus.FAILED
    log.finish()
    assert log.start() == ()
    assert log.run_id not in log.partition.open


def test_the_same_id_with_another_body_is_dead_lettered() -> None:
    log = Log()
    log.start()
    (letter,) = only(DeadLetter, log.start(digest="other"))
    assert letter.reason is DeadLetterReason.IDEMPOTENCY_CONFLICT
    assert letter.request.offset == 7
    log.cancel()
    log.finish()
    assert only(DeadLetter, log.append(rejected(digest="third")))


def test_a_request_older_than_the_window_is_dead_lettered() -> None:
    log = Log()
    (letter,) = only(DeadLetter, log.start(log_time=T0 - WINDOW_MS - 10))
    assert letter.reason is DeadLetterReason.REQUEST_TOO_OLD


def test_a_finished_run_is_remembered_for_the_window_and_then_forgotten() -> None:
    log = Log(window_ms=1_000)
    log.start(log_time=log.now)
    log.cancel()
    log.finish()
    assert log.append(started(log_time=log.now), 999) == ()
    assert dispatched(log.append(started(log_time=log.now), 10)) == ["a#1", "b#1"]


def test_a_rejected_run_ends_failed_with_its_error_and_is_remembered() -> None:
    log = Log()
    (decided,) = only(Finish, log.append(rejected()))
    (publish,) = only(Publish, log.append(finish(decided.run, Mapped())))
    response = publish.finished.response
    assert (response.status, response.pipeline, response.pipeline_version) == (RunStatus.FAILED, "nope", None)
    assert response.error is not None
    assert response.error.code is ErrorCode.UNKNOWN_PIPELINE
    assert log.append(rejected()) == ()


def test_a_run_that_needs_a_newer_fold_is_not_passed() -> None:
    for event in (started(min_fold=2), rejected().model_copy(update={"min_fold": 2})):
        with pytest.raises(FoldTooOldError, match="needs fold 2"):
            fold(Log().partition, LogRecord(T0, event))


def test_events_of_an_unknown_run_are_dropped() -> None:
    log = Log()
    assert log.done("a") == ()
    assert log.tick(1) == ()
    assert not log.partition.open


# Gates, skips, cancels ------------------------------------------------------------------------


GUARDED = graph(model("a"), gate("safe"), model("b", "safe"))


def test_an_open_gate_lets_its_dependents_start() -> None:
    log = Log()
    log.start(GUARDED)
    assert dispatched(log.done("safe", value=True, model_class=None)) == ["b#1"]


def test_a_shut_gate_blocks_the_run_and_stops_what_runs() -> None:
    log = Log()
    log.start(GUARDED)
    assert only(Finish, log.done("safe", value=False, model_class=None))
    assert log.status is RunStatus.BLOCKED
    (publish,) = only(Publish, log.finish())
    assert publish.deadline_at == T0 + DEADLINE_MS
    assert publish.finished.response.error is not None
    assert publish.finished.response.error.code is ErrorCode.BLOCKED


def test_a_gate_that_is_neither_true_nor_false_fails_closed() -> None:
    log = Log()
    log.start(GUARDED)
    log.done("safe", value="yes", model_class=None)
    assert log.status is RunStatus.FAILED


def test_a_skipped_step_is_over_and_never_missing() -> None:
    log = Log()
    log.start(graph(model("a", on_failure=OnFailure.CONTINUE), model("b", "a")))
    (dispatch,) = only(Dispatch, log.skip("a"))
    assert dispatch.ready.outputs == {}
    log.done("b")
    assert log.status is RunStatus.SUCCEEDED
    assert log.run.missing == ()


def test_a_skip_counts_only_for_the_current_attempt_of_an_open_step() -> None:
    log = Log()
    log.start()
    assert log.skip("a", attempt=2) == ()
    assert log.skip("nowhere") == ()
    log.done("a")
    assert log.skip("a") == ()
    assert log.run.steps["a"].status is StepStatus.SUCCEEDED


def test_a_cancel_ends_the_run() -> None:
    log = Log()
    log.start()
    log.cancel()
    (publish,) = only(Publish, log.finish())
    assert publish.finished.response.status is RunStatus.CANCELLED
    assert publish.deadline_at == T0 + DEADLINE_MS


def test_an_attempt_left_running_beside_the_one_that_won_is_stopped() -> None:
    log = Log()
    log.start(graph(model("a", timeout_ms=1_000, chain=(Target(model_class="llm"), Target(model_class="small")))))
    assert dispatched(log.tick(1_000 + STEP_TIMEOUT_GRACE_MS)) == ["a#2"]
    log.done("a", attempt=1)
    (publish,) = only(Publish, log.finish())
    assert publish.finished.response.status is RunStatus.SUCCEEDED
    assert publish.deadline_at == T0 + DEADLINE_MS


def test_a_cancel_before_the_start_is_remembered_and_applied() -> None:
    log = Log()
    log.cancel()
    (decided,) = log.start()
    assert isinstance(decided, Finish)
    assert log.status is RunStatus.CANCELLED
    assert len(log.partition.cancelled) == 0


def test_a_cancel_of_a_run_that_is_over_changes_nothing() -> None:
    log = Log()
    log.start()
    log.cancel()
    log.finish()
    assert log.cancel() == ()
    assert len(log.partition.cancelled) == 0


# Attempts -------------------------------------------------------------------------------------


def test_the_first_completion_of_any_dispatched_attempt_wins() -> None:
    log = Log()
    log.start()
    log.fail("a", retryable=True)
    log.tick(1_000)
    log.done("a", "late first", attempt=1)
    log.done("a", "second", attempt=2)
    output = log.run.steps["a"].output
    assert output is not None
    assert output.value == "late first"


def test_a_completion_of_an_attempt_never_dispatched_is_ignored() -> None:
    log = Log()
    log.start()
    assert log.done("a", attempt=2) == ()
    assert log.done("nowhere") == ()
    assert log.run.steps["a"].status is StepStatus.READY
    assert log.run.steps["a"].cost.cost_usd == 0


def test_a_retryable_failure_is_tried_again_when_its_backoff_is_over() -> None:
    log = Log()
    log.start()
    assert log.fail("a", retryable=True) == ()
    assert log.tick(50) == ()
    assert dispatched(log.tick(300)) == ["a#2"]


def test_a_due_retry_starts_with_whatever_event_comes_first() -> None:
    log = Log()
    log.start()
    log.fail("a", retryable=True)
    assert dispatched(log.done("b", after_ms=5_000)) == ["a#2"]


def test_retries_stop_at_the_steps_attempts() -> None:
    log = Log()
    log.start(graph(model("a", max_attempts=2)))
    log.fail("a", retryable=True)
    log.tick(5_000)
    log.fail("a", attempt=2, retryable=True)
    assert log.status is RunStatus.FAILED


def test_no_retry_is_planned_past_the_deadline() -> None:
    log = Log()
    log.start(graph(model("a")))
    log.fail("a", retryable=True, after_ms=DEADLINE_MS - 50)
    assert log.status is RunStatus.FAILED


def test_a_failure_counts_once_and_only_for_the_current_attempt() -> None:
    log = Log()
    log.start()
    log.fail("a", retryable=True)
    assert log.fail("a", retryable=False) == ()
    assert log.fail("nowhere") == ()
    log.tick(1_000)
    assert log.fail("a", attempt=1) == ()
    assert log.status is None
    assert log.run.steps["a"].attempt == 2


def test_a_permanent_failure_fails_the_run_and_names_the_step() -> None:
    log = Log()
    log.start()
    log.fail("b")
    (publish,) = only(Publish, log.finish())
    error = publish.finished.response.error
    assert error is not None
    assert (error.code, error.step) == (ErrorCode.ENGINE_FAILED, "b")


def test_a_failure_that_may_be_lost_makes_the_run_partial_and_names_the_step() -> None:
    log = Log()
    log.start(OPTIONAL)
    (dispatch,) = only(Dispatch, log.fail("a"))
    assert dispatch.ready.outputs == {}
    log.done("b")
    (publish,) = only(Publish, log.finish())
    response = publish.finished.response
    assert (response.status, response.missing) == (RunStatus.PARTIAL, ("a",))
    assert response.steps["a"].error is not None


def test_a_fallback_is_taken_at_once_and_attempt_numbers_go_on() -> None:
    chain = (Target(model_class="llm"), Target(model_class="llm", backend="burst"), Target(value="sorry"))
    log = Log()
    log.start(graph(model("a", chain=chain)))
    (dispatch,) = only(Dispatch, log.fail("a"))
    assert (dispatch.ready.attempt, dispatch.ready.fallback, dispatch.ready.target.backend) == (2, 1, "burst")
    (dispatch,) = only(Dispatch, log.fail("a", attempt=2))
    assert (dispatch.ready.fallback, dispatch.ready.target.value) == (2, "sorry")
    log.done("a", "sorry", attempt=3, fallback=2, model_class=None)
    assert log.status is RunStatus.SUCCEEDED
    (publish,) = only(Publish, log.finish())
    assert publish.finished.response.steps["a"].fallback == 2


# Time -----------------------------------------------------------------------------------------


def test_the_first_event_at_the_deadline_ends_the_run() -> None:
    log = Log()
    log.start()
    assert log.tick(DEADLINE_MS - 2) == ()
    assert only(Finish, log.done("a"))
    assert log.status is RunStatus.EXPIRED


def test_a_run_admitted_after_its_deadline_expires_at_once() -> None:
    log = Log()
    (decided,) = log.append(started(), DEADLINE_MS)
    assert isinstance(decided, Finish)
    assert log.status is RunStatus.EXPIRED


def test_a_step_past_its_timeout_fails_without_a_retry() -> None:
    log = Log()
    log.start(graph(model("a", timeout_ms=2_000)))
    assert log.tick(2_000 + STEP_TIMEOUT_GRACE_MS - 1) == ()
    log.tick(1)
    assert log.status is RunStatus.FAILED
    assert log.run.steps["a"].error is not None
    assert log.run.steps["a"].error.code is ErrorCode.DEADLINE_EXCEEDED


def test_a_timeout_takes_the_fallback() -> None:
    chain = (Target(model_class="llm"), Target(model_class="small"))
    log = Log()
    log.start(graph(model("a", timeout_ms=2_000, chain=chain)))
    assert dispatched(log.tick(3_000)) == ["a#2"]


def test_a_timeout_longer_than_the_deadline_is_the_deadline() -> None:
    log = Log()
    (dispatch,) = only(Dispatch, log.start(graph(model("a", timeout_ms=DEADLINE_MS * 2))))
    assert dispatch.ready.step_deadline_at == dispatch.ready.deadline_at
    assert log.run.next_due == T0 + DEADLINE_MS


def test_the_next_timer_is_the_earliest_of_deadline_timeouts_and_retries() -> None:
    log = Log()
    log.start(graph(model("a", timeout_ms=2_000), model("b")))
    assert log.run.next_due == log.now + 2_000 + STEP_TIMEOUT_GRACE_MS
    log.fail("b", retryable=True)
    assert log.run.next_due == log.run.steps["b"].retry_at
    log.cancel()
    assert log.run.next_due == log.now + FINISH_AGAIN_MS
    other = Log()
    other.append(rejected())
    assert other.run.next_due == other.now + FINISH_AGAIN_MS


def test_two_timers_due_at_one_tick_both_apply() -> None:
    log = Log()
    log.start(
        graph(model("a", timeout_ms=1_000, on_failure=OnFailure.CONTINUE), model("b", timeout_ms=1_000), model("c"))
    )
    log.tick(2_500)
    assert log.run.steps["a"].status is StepStatus.FAILED
    assert log.run.steps["b"].status is StepStatus.FAILED
    assert log.status is RunStatus.FAILED


def test_timers_after_the_run_has_closed_do_nothing() -> None:
    log = Log()
    log.start(graph(model("a", timeout_ms=1_000), model("b", timeout_ms=1_000)))
    log.tick(2_500)
    assert log.status is RunStatus.FAILED
    assert log.run.steps["b"].status is StepStatus.READY


# Money ----------------------------------------------------------------------------------------


def test_every_attempt_is_charged_once() -> None:
    log = Log()
    log.start(graph(model("a"), model("z")))
    log.fail("a", retryable=True)
    log.fail("a", retryable=True)
    log.tick(1_000)
    log.done("a", attempt=2)
    log.done("a", attempt=2)
    cost = log.run.steps["a"].cost
    assert (cost.attempts, cost.cost_usd, cost.input_tokens) == (2, 0.75, 10)


def test_a_late_attempt_of_a_finished_step_is_still_paid_for() -> None:
    log = Log()
    log.start(graph(model("a", timeout_ms=1_000, on_failure=OnFailure.CONTINUE), model("z")))
    log.tick(2_500)
    assert log.done("a") == ()
    assert log.run.steps["a"].status is StepStatus.FAILED
    assert log.run.steps["a"].cost.cost_usd == 0.5


# Memory ---------------------------------------------------------------------------------------


def test_runs_of_one_graph_share_one_plan() -> None:
    log = Log()
    log.start()
    log.append(started(request_id="r2"))
    plans = [run.plan for run in log.partition.open.values() if isinstance(run, Run)]
    assert plans[0] is plans[1]


def test_graphs_that_no_open_run_uses_are_forgotten_once_there_are_many() -> None:
    log = Log()
    log.append(started(request_id="other"))
    for number in range(MAX_PLANS + 1):
        log.append(started(graph_digest=f"g{number}"))
        log.cancel()
        log.finish()
        log.partition = log.partition.__class__(
            finished=log.partition.finished.forget(log.run_id),
            cancelled=log.partition.cancelled,
            open=log.partition.open,
            plans=log.partition.plans,
            prune_at=log.partition.prune_at,
        )
    assert len(log.partition.plans) < MAX_PLANS
    assert started(request_id="other").graph_digest in log.partition.plans


def test_folding_never_changes_an_older_version_of_the_state() -> None:
    log = Log()
    log.start()
    before = log.partition
    run = log.run
    steps_before = dict(run.steps)
    log.done("a")
    log.cancel()
    log.finish()
    assert before.open[log.run_id] is run
    assert run.steps == steps_before
    assert log.run_id not in log.partition.open


def test_a_value_step_is_completed_without_a_model_and_costs_nothing() -> None:
    value = Step(id="v", kind=StepKind.VALUE, input="${input.q}", chain=(Target(),))
    log = Log()
    log.start(graph(value))
    log.done("v", 7, model_class=None, backend=None, task_at=None, cost_usd=0.0)
    assert log.status is RunStatus.SUCCEEDED
    assert log.run.steps["v"].cost.attempts == 0


def test_the_diamond_is_what_these_tests_mean_by_it() -> None:
    assert [step.id for step in DIAMOND.steps] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "broken",
    [
        graph(),
        graph(model("a"), model("a")),
        graph(model("a", "nowhere")),
        graph(model("a", chain=())),
    ],
)
def test_a_graph_that_no_run_could_go_through_is_refused_and_changes_nothing(broken: Graph) -> None:
    log = Log()
    before = log.partition
    with pytest.raises(ValueError, match=r"the graph|step 'a'"):
        log.start(broken)
    assert log.partition is before
