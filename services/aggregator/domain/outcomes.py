"""From a decided run to its one response and its bill."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from schemas import ids
from schemas.base import Json, RunStatus, StepStatus
from schemas.errors import ErrorCode, ErrorDetail
from schemas.events import RunFinished, RunRejected, RunStarted
from schemas.responses import Cost, InferenceResponse, StepReport, Timing
from schemas.usage import UsageRecord
from services.aggregator.domain.evolve import evolve
from services.aggregator.domain.state import Outcome, Run, StepState

LARGEST = sys.float_info.max
"""JSON has no infinity: an outcome whose sums overflowed could not be read back, and its run would never end."""
LAST_MS = 253_402_300_799_000
"""The end of the year 9999: an outcome has a date, whatever log time a forged opening claims."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """What the output mapping gave: a value, or why there is none."""

    value: Json = None
    error: ErrorDetail | None = None


def reaches_output(run: Run) -> bool:
    """Whether the run's output mapping is to be evaluated."""
    return run.outcome is not None and run.outcome.status in (RunStatus.SUCCEEDED, RunStatus.PARTIAL)


def finish(run: Run, mapped: Mapped) -> RunFinished:
    """The outcome as `run-finished` carries it: a function of the log alone (and of the mapping's value)."""
    assert run.outcome is not None
    outcome = run.outcome
    if mapped.error is not None:
        outcome = evolve(outcome, status=RunStatus.FAILED, error=mapped.error)
    usage = _usage(run, outcome)
    return RunFinished(
        run_id=run.run_id,
        tenant=run.started.tenant,
        traceparent=run.started.traceparent,
        response_topic=run.started.response_topic,
        correlation_id=run.started.correlation_id,
        response=_response(run, outcome, usage, mapped.value),
        usage=usage,
    )


def _response(run: Run, outcome: Outcome, usage: UsageRecord, output: Json) -> InferenceResponse:
    started = run.started
    return InferenceResponse(
        response_id=ids.response_id(run.run_id),
        request_id=started.request_id,
        run_id=run.run_id,
        tenant=started.tenant,
        pipeline=usage.pipeline,
        pipeline_version=usage.pipeline_version,
        status=outcome.status,
        output=output,
        missing=run.missing,
        error=outcome.error,
        steps={step_id: _report(state) for step_id, state in run.steps.items()},
        timing=timing(run, outcome.decided_at),
        usage=Cost(cost_usd=usage.cost_usd, by_step=usage.by_step),
        variants=started.variants if isinstance(started, RunStarted) else {},
        session=started.session,
        labels=started.labels,
        started_at=_iso(started.request.log_time),
        finished_at=_iso(outcome.decided_at),
    )


def _usage(run: Run, outcome: Outcome) -> UsageRecord:
    started = run.started
    pipeline, version = _pipeline(started)
    return UsageRecord(
        run_id=run.run_id,
        tenant=started.tenant,
        traceparent=started.traceparent,
        usage_id=ids.usage_id(run.run_id),
        request_id=started.request_id,
        pipeline=pipeline,
        pipeline_version=version,
        status=outcome.status,
        cost_usd=_total_cost(run),
        by_step={step_id: state.cost for step_id, state in run.steps.items() if state.cost.attempts},
        finished_at=outcome.decided_at,
    )


def _pipeline(started: RunStarted | RunRejected) -> tuple[str, int | None]:
    if isinstance(started, RunRejected):
        return started.pipeline, None
    return started.graph.pipeline, started.graph.version


def _report(state: StepState) -> StepReport:
    return StepReport(
        status=state.status,
        attempts=state.attempt,
        model_class=state.model_class,
        backend=state.backend,
        fallback=state.fallback,
        error=state.error if state.status is not StepStatus.SUCCEEDED else None,
    )


def _total_cost(run: Run) -> float:
    return min(LARGEST, sum(state.cost.cost_usd for state in run.steps.values()))


def timing(run: Run, decided_at: int) -> Timing:
    """Splits the total along the critical path.

    A step's queue = its event's stamp − the task's stamp − service − cold; coordination is all that remains of the
    total: admission, joins, dispatch and the hops between them. Each part is clamped to what is left: they sum.
    """
    path = critical_path(run)
    won = [(run.steps[step_id].over_at, run.steps[step_id].won) for step_id in path]
    total = float(max(0, decided_at - run.started.request.log_time))
    service = min(total, sum(attempt.service_ms for _, attempt in won))
    cold = min(total - service, sum(attempt.cold_ms for _, attempt in won))
    waits = sum(
        max(0.0, over_at - attempt.task_at - attempt.service_ms - attempt.cold_ms)
        for over_at, attempt in won
        if attempt.task_at is not None
    )
    queue = min(total - service - cold, waits)
    return Timing(
        total_ms=total,
        queue_ms=round(queue, 3),
        cold_ms=round(cold, 3),
        service_ms=round(service, 3),
        coordination_ms=round(total - service - cold - queue, 3),
        critical_path=path,
    )


def critical_path(run: Run) -> tuple[str, ...]:
    """From the step that was over last, back through whichever need it waited for longest."""
    if run.plan is None:
        return ()
    over = [step_id for step_id, state in run.steps.items() if state.is_over]
    path: list[str] = []
    while over:
        latest = max(over, key=lambda step_id: run.steps[step_id].over_at)
        path.append(latest)
        over = [need for need in run.plan.steps[latest].needs if run.steps[need].is_over]
    return tuple(reversed(path))


def _iso(log_time_ms: int) -> str:
    return (
        datetime.fromtimestamp(min(log_time_ms, LAST_MS) / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def too_large(size_bytes: int, limit_bytes: int) -> ErrorDetail:
    """Why a response that does not fit is no response."""
    message = f"the output makes a response of {size_bytes} bytes; at most {limit_bytes} fit"
    return ErrorDetail(code=ErrorCode.CONTENT_TOO_LARGE, message=message)
