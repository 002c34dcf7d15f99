"""A run that is over, as spans: the run, its steps with links to what they waited for, and the response.

All from the log: whoever folds it tells the same spans, with the same times.
"""

from collections.abc import Iterator

from schemas.base import LogTime, RunStatus, StepStatus
from schemas.events import RunFinished
from services.aggregator.domain.state import Run, StepState
from services.chassis.tracing import RUN, Kind, Span, Trace, step_span

FAILED = (RunStatus.FAILED, RunStatus.EXPIRED)
UNKNOWN = "unknown"


def spans(run: Run, finished: RunFinished, finished_at: LogTime) -> Iterator[Span]:
    """None for a run that is not sampled. `finished_at` stamps `run-finished`: the response goes out then."""
    trace, decided_at = Trace.of(run.started), run.outcome.decided_at if run.outcome else finished_at
    if not trace.sampled:
        return
    yield _run(trace, run, finished, finished_at)
    for step_id, state in run.steps.items():
        if state.attempt:
            yield _step(trace, run, step_id, state, decided_at)
    topic = {"messaging.system": "kafka", "messaging.destination.name": finished.response_topic}
    yield Span("response", trace, "response", RUN, decided_at, finished_at, Kind.PRODUCER, topic)


def _run(trace: Trace, run: Run, finished: RunFinished, finished_at: LogTime) -> Span:
    response, timing = finished.response, finished.response.timing
    # The name in a rejected request is a client's text, and no title.
    pipeline = response.pipeline if response.pipeline_version is not None else UNKNOWN
    return Span(
        f"run {pipeline}",
        trace,
        RUN,
        None,
        run.started.request.log_time,
        finished_at,
        Kind.SERVER,
        {
            "headway.pipeline": pipeline,
            "headway.tenant": finished.tenant,
            "headway.request_id": response.request_id,
            "headway.status": response.status,
            "headway.cost_usd": response.usage.cost_usd,
            "headway.total_ms": timing.total_ms,
            "headway.queue_ms": timing.queue_ms,
            "headway.cold_ms": timing.cold_ms,
            "headway.service_ms": timing.service_ms,
            "headway.coordination_ms": timing.coordination_ms,
        },
        error=(response.error.code if response.error else response.status) if response.status in FAILED else None,
    )


def _step(trace: Trace, run: Run, step_id: str, state: StepState, decided_at: LogTime) -> Span:
    """From its first attempt to its end; one that was still under way ends with the run."""
    assert run.plan is not None
    needs = run.plan.steps[step_id].needs
    return Span(
        f"step {step_id}",
        trace,
        step_span(step_id),
        RUN,
        state.ready_at,
        state.over_at if state.is_over else decided_at,
        attributes={
            "headway.step": step_id,
            "headway.status": state.status,
            "headway.attempts": state.attempt,
            "headway.fallback": state.fallback,
        },
        links=tuple(step_span(need) for need in needs if run.steps[need].attempt),
        error=state.error.code if state.status is StepStatus.FAILED and state.error else None,
    )
