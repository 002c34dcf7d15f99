"""A run's timeline is what its log says, finished or not."""

from headway.cli.timeline import RUNNING, StepTimeline, Timeline, timeline
from schemas.base import Output, Priority, RunStatus, StepStatus
from schemas.errors import ErrorCode, ErrorDetail
from schemas.events import (
    Event,
    RequestCoordinates,
    RunCancelled,
    RunFinished,
    RunRejected,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepSkipped,
)
from schemas.graphs import Graph, Step, StepKind, Target
from schemas.responses import Cost, InferenceResponse, StepReport, Timing
from schemas.usage import UsageRecord

RUN, TENANT, BEGAN = "run-1", "default", 1_000_000


def model(step: str, *needs: str, fallbacks: int = 0, max_attempts: int = 3) -> Step:
    chain = (Target(model_class=f"{step}-class"), *(Target(backend=f"other-{n}") for n in range(fallbacks)))
    return Step(id=step, kind=StepKind.MODEL, needs=needs, chain=chain, max_attempts=max_attempts)


def started(*steps: Step) -> RunStarted:
    return RunStarted(
        run_id=RUN,
        tenant=TENANT,
        request_id="request-1",
        request=RequestCoordinates(topic="inference-requests", partition=0, offset=7, log_time=BEGAN),
        body_digest="d",
        response_topic="inference-responses",
        input=Output(value={}),
        priority=Priority.STANDARD,
        deadline_at=BEGAN + 30_000,
        graph=Graph(pipeline="ask", version=2, steps=steps, output="${steps.a}"),
        graph_digest="g",
    )


def completed(step: str, attempt: int = 1, **more: object) -> StepCompleted:
    return StepCompleted(run_id=RUN, tenant=TENANT, step=step, attempt=attempt, output=Output(value=1), **more)


def failed(step: str, attempt: int = 1, *, retryable: bool = True, **more: object) -> StepFailed:
    error = ErrorDetail(code=ErrorCode.ENGINE_FAILED, message="it broke", retryable=retryable)
    return StepFailed(run_id=RUN, tenant=TENANT, step=step, attempt=attempt, error=error, **more)


def finished(status: RunStatus, path: tuple[str, ...] = (), **reports: StepReport) -> RunFinished:
    response = InferenceResponse(
        response_id="r", request_id="request-1", run_id=RUN, tenant=TENANT, pipeline="ask", pipeline_version=2,
        status=status, steps=reports, timing=Timing(total_ms=90.0, critical_path=path), usage=Cost(cost_usd=0.25),
        started_at="", finished_at="",
    )  # fmt: skip
    usage = UsageRecord(
        run_id=RUN, tenant=TENANT, usage_id="u", request_id="request-1", pipeline="ask", pipeline_version=2,
        status=status, cost_usd=0.25, finished_at=BEGAN + 90,
    )  # fmt: skip
    return RunFinished(
        run_id=RUN, tenant=TENANT, response_topic="inference-responses", response=response, usage=usage
    )


def told(*events: tuple[int, Event]) -> Timeline:
    """The timeline of events stamped so many milliseconds after the request."""
    run = timeline((BEGAN + at, event) for at, event in events)
    assert run is not None
    return run


def step_of(run: Timeline, step: str) -> StepTimeline:
    return next(found for found in run.steps if found.step == step)


def test_a_run_that_never_began_has_no_timeline() -> None:
    assert timeline([]) is None
    assert timeline([(BEGAN, RunCancelled(run_id=RUN, tenant=TENANT, cancelled_by="me"))]) is None


def test_a_step_is_enabled_when_its_last_need_is_over() -> None:
    run = told(
        (2, started(model("a"), model("b"), model("c", "a", "b"))),
        (10, completed("b")),
        (30, completed("a")),
    )
    assert step_of(run, "a").enabled_ms == 2
    assert step_of(run, "c").enabled_ms == 30
    assert step_of(run, "c").status is StepStatus.READY


def test_a_step_with_an_open_need_is_pending() -> None:
    run = told((2, started(model("a"), model("b", "a"))))
    assert step_of(run, "b").enabled_ms is None
    assert step_of(run, "b").status is StepStatus.PENDING


def test_the_time_of_an_attempt_splits_into_cold_queue_and_service() -> None:
    run = told(
        (0, started(model("a"))),
        (100, completed("a", task_at=BEGAN + 10, service_ms=50.0, cold_ms=15.0)),
    )
    (attempt,) = step_of(run, "a").attempts
    assert (attempt.cold_ms, attempt.queue_ms, attempt.service_ms) == (15.0, 25.0, 50.0)
    assert attempt.task_ms == 10.0


def test_a_queue_is_never_negative_when_clocks_round() -> None:
    run = told((0, started(model("a"))), (9, completed("a", task_at=BEGAN, service_ms=9.6)))
    assert step_of(run, "a").queue_ms == 0.0


def test_retries_are_attempts_of_one_step_and_repeats_are_not() -> None:
    run = told(
        (0, started(model("a"))),
        (10, failed("a", 1, cost_usd=0.1)),
        (11, failed("a", 1, cost_usd=0.1)),
        (40, completed("a", 2, cost_usd=0.2)),
        (50, completed("a", 1, cost_usd=0.4)),
    )
    a = step_of(run, "a")
    assert [(attempt.number, attempt.succeeded) for attempt in a.attempts] == [(1, False), (2, True)]
    assert (a.status, a.ended_ms, a.error) == (StepStatus.SUCCEEDED, 40, None)
    assert round(run.cost_usd, 6) == 0.3


def test_a_step_stays_open_until_its_attempts_and_fallbacks_are_spent() -> None:
    step = model("a", fallbacks=1, max_attempts=2)
    log: list[tuple[int, Event]] = [(0, started(step)), (10, failed("a", 1)), (20, failed("a", 2))]
    assert step_of(told(*log), "a").status is StepStatus.READY
    log.append((30, failed("a", 3, fallback=1, retryable=False)))
    a = step_of(told(*log), "a")
    assert (a.status, a.ended_ms, a.fallback) == (StepStatus.FAILED, 30, 1)
    assert a.error is not None
    assert a.error.code is ErrorCode.ENGINE_FAILED


def test_a_failure_that_no_repeat_can_help_ends_the_step_at_once() -> None:
    assert step_of(told((0, started(model("a"))), (10, failed("a", retryable=False))), "a").ended_ms == 10


def test_a_skipped_step_is_over_without_an_attempt() -> None:
    skipped = StepSkipped(run_id=RUN, tenant=TENANT, step="a", attempt=1)
    a = step_of(told((0, started(model("a"))), (5, skipped)), "a")
    assert (a.status, a.ended_ms, a.attempts) == (StepStatus.SKIPPED, 5, ())


def test_an_unfinished_run_has_the_age_of_its_newest_event_and_a_path_to_what_is_open() -> None:
    run = told((2, started(model("a"), model("b"), model("c", "a", "b"))), (10, completed("b")), (30, completed("a")))
    assert (run.status, run.total_ms) == (RUNNING, 30)
    assert run.critical_path == ("a", "c")
    assert step_of(run, "a").critical
    assert not step_of(run, "b").critical


def test_a_finished_run_says_what_its_response_says() -> None:
    run = told(
        (2, started(model("a"), model("b"))),
        (80, completed("a")),
        (95, finished(RunStatus.PARTIAL, ("a",), a=StepReport(status="succeeded"), b=StepReport(status="failed"))),
        (120, completed("b")),
    )
    assert (run.status, run.total_ms, run.cost_usd, run.critical_path) == ("partial", 90.0, 0.25, ("a",))
    assert step_of(run, "b").status is StepStatus.FAILED
    assert step_of(run, "b").attempts == (), "what comes after the end has no effect"


def test_a_rejected_request_is_a_run_without_steps() -> None:
    error = ErrorDetail(code=ErrorCode.UNKNOWN_PIPELINE, message="no pipeline `nope`")
    rejected = RunRejected(
        run_id=RUN, tenant=TENANT, request_id="request-1", body_digest="d", response_topic="t", pipeline="nope",
        request=RequestCoordinates(topic="inference-requests", partition=0, offset=7, log_time=BEGAN), error=error,
    )  # fmt: skip
    run = told((1, rejected))
    assert (run.pipeline, run.version, run.steps, run.error) == ("nope", None, (), error)


def test_a_second_start_and_a_cancellation_are_told_apart() -> None:
    cancelled = RunCancelled(run_id=RUN, tenant=TENANT, cancelled_by="ops")
    run = told((0, cancelled), (2, started(model("a"))), (4, started(model("other"))))
    assert [step.step for step in run.steps] == ["a"]
    assert run.cancelled_by == "ops"
