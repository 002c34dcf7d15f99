"""The join: one record after another, whoever folds the same log reaches the same state and the same decisions.

``fold`` is pure. The first event in log order wins; time is the stamp that the broker gave the record being folded;
whatever a record makes due (deadline, time-outs, retries) is applied at that stamp.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict
from zlib import crc32

from schemas import ids
from schemas.base import Output, RunStatus, StepStatus
from schemas.errors import DeadLetterReason, ErrorCode, ErrorDetail
from schemas.events import (
    AttemptEvent,
    Event,
    RunCancelled,
    RunFinished,
    RunRejected,
    RunStarted,
    RunTicked,
    StepCompleted,
    StepEvent,
    StepFailed,
    StepSkipped,
)
from schemas.graphs import OnFailure, StepKind
from schemas.joins import StepReady
from schemas.usage import StepCost
from services.aggregator.domain.decisions import DeadLetter, Decision, Dispatch, Finish, Publish
from services.aggregator.domain.evolve import evolve
from services.aggregator.domain.packing import open_run, sharing
from services.aggregator.domain.plans import Plan
from services.aggregator.domain.state import (
    FINISH_AGAIN_MS,
    MAX_PLANS,
    PENDING,
    STEP_TIMEOUT_GRACE_MS,
    Attempt,
    Outcome,
    Partition,
    Run,
    StepState,
)

FOLD_VERSION = 1
RETRY_BASE_MS = 200
RETRY_CAP_MS = 10_000

Folded = tuple[Partition, tuple[Decision, ...]]
Changed = tuple[Run, tuple[Decision, ...]]


class FoldTooOldError(Exception):
    """A run needs a newer fold than this one: this process must not pass it. Upgrade aggregators first."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """An event with the stamp the broker gave it."""

    timestamp: int
    event: Event


def fold(partition: Partition, record: LogRecord) -> Folded:
    """The next state of the partition, and what is to be done about it.

    Raises FoldTooOldError for a run that this version must not judge.
    """
    event, now = record.event, record.timestamp
    if isinstance(event, RunStarted | RunRejected):
        return _on_opening(partition, event, now)
    run = open_run(partition, event.run_id)
    if run is None:
        return _on_unknown(partition, event, now)
    if isinstance(event, RunFinished):
        return _on_run_finished(partition, event, run, now)
    if run.outcome is not None:
        return _on_closing(partition, run, run.outcome, now)
    changed, decisions = _on_open(run, event, now)
    return (partition, ()) if changed is run else (partition.with_run(changed), decisions)


def _on_opening(partition: Partition, event: RunStarted | RunRejected, now: int) -> Folded:
    if event.min_fold > FOLD_VERSION:
        raise FoldTooOldError(f"run {event.run_id} needs fold {event.min_fold}, this is {FOLD_VERSION}")
    if (known := _known_digest(partition, event.run_id, now)) is not None:
        return partition, _conflict(event, known)
    if now - event.request.log_time > partition.finished.window_ms:
        message = "the request is older than the idempotency window; send it again under a new request id"
        return partition, (DeadLetter(event.request, DeadLetterReason.REQUEST_TOO_OLD, message),)
    if isinstance(event, RunRejected):
        run = Run(event, None, {}).closed(RunStatus.FAILED, now, event.error)
        return partition.with_run(run), (Finish(run),)
    return _open(partition, event, now)


def _known_digest(partition: Partition, run_id: str, now: int) -> str | None:
    run = open_run(partition, run_id)
    return run.started.body_digest if run is not None else partition.finished.get(run_id, now)


def _conflict(event: RunStarted | RunRejected, known: str) -> tuple[Decision, ...]:
    if event.body_digest == known:
        return ()  # the same request again: one run, one answer
    message = f"request_id {event.request_id!r} was used with another body; use a new request_id"
    return (DeadLetter(event.request, DeadLetterReason.IDEMPOTENCY_CONFLICT, message),)


def _open(partition: Partition, event: RunStarted, now: int) -> Folded:
    plan = partition.plans.get(event.graph_digest)
    if plan is None:
        plan = Plan.of(event.graph)
        partition = evolve(partition, plans=partition.plans.set(event.graph_digest, plan))
    run = Run(sharing(event, plan.graph), plan, dict.fromkeys(plan.steps, PENDING))
    cancelled_by = partition.cancelled.get(event.run_id, now)
    if cancelled_by is not None:
        partition = evolve(partition, cancelled=partition.cancelled.forget(event.run_id))
        run, decisions = _close(run, RunStatus.CANCELLED, now, _cancelled(cancelled_by))
    elif now >= event.deadline_at:
        run, decisions = _close(run, RunStatus.EXPIRED, now, _expired())
    else:
        run, decisions = _start(run, plan.roots, now)
    return partition.with_run(run), decisions


def _on_unknown(partition: Partition, event: Event, now: int) -> Folded:
    """A cancel may come before its run and is remembered; anything else is late, or of a run long over."""
    if not isinstance(event, RunCancelled) or partition.finished.get(event.run_id, now) is not None:
        return partition, ()
    remembered = partition.cancelled.remember(event.run_id, event.cancelled_by, now)
    return evolve(partition, cancelled=remembered), ()


def _on_run_finished(partition: Partition, event: RunFinished, run: Run, now: int) -> Folded:
    partition = evolve(
        partition,
        open=partition.open.delete(run.run_id),
        finished=partition.finished.remember(run.run_id, run.started.body_digest, now),
    )
    deadline_at = run.started.deadline_at if isinstance(run.started, RunStarted) else None
    return _prune(partition), (Publish(event, deadline_at, run),)


def _on_closing(partition: Partition, run: Run, outcome: Outcome, now: int) -> Folded:
    """Nothing changes what was decided; but a `run-finished` that never came is asked for again."""
    if now < outcome.again_at:
        return partition, ()
    again = evolve(run, outcome=evolve(outcome, again_at=now + FINISH_AGAIN_MS))
    return partition.with_run(again), (Finish(again),)


def _prune(partition: Partition) -> Partition:
    """Forgets graphs that no open run uses, once there are many: configurations come and go."""
    if len(partition.plans) <= partition.prune_at:
        return partition
    used = {run.graph_digest for run in partition.open.values()}
    kept = partition.plans
    for digest in partition.plans:
        if digest not in used:
            kept = kept.delete(digest)
    return evolve(partition, plans=kept, prune_at=max(MAX_PLANS, 2 * len(kept)))


# An open run ------------------------------------------------------------


def _on_open(run: Run, event: Event, now: int) -> Changed:
    assert isinstance(run.started, RunStarted)
    if now >= run.started.deadline_at:
        return _close(run, RunStatus.EXPIRED, now, _expired())
    changed, decisions = _HANDLERS[type(event)](run, event, now)
    due_run, due_decisions = _apply_timers(changed, now)
    return due_run, decisions + due_decisions


def _on_step_completed(run: Run, event: StepCompleted, now: int) -> Changed:
    state = run.steps.get(event.step)
    if state is None:
        return run, ()
    if state.status is not StepStatus.READY or event.attempt > state.attempt:
        return _charged_only(run, event, state), ()
    if _step_kind(run, event.step) is StepKind.GATE and event.output.value is not True:
        return _on_gate_shut(run, event, state, now)
    done = evolve(
        state,
        **_charge(state, event),
        status=StepStatus.SUCCEEDED,
        fallback=event.fallback,
        output=event.output,
        error=None,
        over_at=now,
        model_class=event.model_class,
        backend=event.backend,
        won=Attempt(event.task_at, event.service_ms, event.cold_ms),
    )
    return _advance(run.step(event.step, done), event.step, now)


def _on_gate_shut(run: Run, event: StepCompleted, state: StepState, now: int) -> Changed:
    """A gate's answer is true, or the run ends. Whatever is neither true nor false is no answer: fail closed."""
    answer = event.output.value
    done = evolve(state, **_charge(state, event), status=StepStatus.SUCCEEDED, output=event.output, over_at=now)
    if answer is not False:
        message = "a gate must be true or false"
        error = ErrorDetail(code=ErrorCode.INTERNAL, message=message, step=event.step)
        return _close(run.step(event.step, done), RunStatus.FAILED, now, error)
    error = ErrorDetail(code=ErrorCode.BLOCKED, message=f"gate {event.step!r} said no", step=event.step)
    return _close(run.step(event.step, done), RunStatus.BLOCKED, now, error)


def _on_step_failed(run: Run, event: StepFailed, now: int) -> Changed:
    state = run.steps.get(event.step)
    if state is None:
        return run, ()
    if not _is_current(state, event):
        return _charged_only(run, event, state), ()
    charged = evolve(
        state,
        **_charge(state, event),
        model_class=event.model_class,
        backend=event.backend,
        won=Attempt(event.task_at, event.service_ms, event.cold_ms),
    )
    return _fail(run, event.step, charged, event.error, now)


def _on_step_skipped(run: Run, event: StepSkipped, now: int) -> Changed:
    state = run.steps.get(event.step)
    if state is None or not _is_current(state, event):
        return run, ()
    return _advance(run.step(event.step, evolve(state, status=StepStatus.SKIPPED, over_at=now)), event.step, now)


def _on_run_cancelled(run: Run, event: RunCancelled, now: int) -> Changed:
    return _close(run, RunStatus.CANCELLED, now, _cancelled(event.cancelled_by))


def _on_run_ticked(run: Run, _event: RunTicked, _now: int) -> Changed:
    return run, ()


_HANDLERS: dict[type[Any], Callable[[Run, Any, int], Changed]] = {
    StepCompleted: _on_step_completed,
    StepFailed: _on_step_failed,
    StepSkipped: _on_step_skipped,
    RunCancelled: _on_run_cancelled,
    RunTicked: _on_run_ticked,
}


def _is_current(state: StepState, event: StepEvent) -> bool:
    return state.status is StepStatus.READY and state.retry_at is None and event.attempt == state.attempt


class _Charge(TypedDict, total=False):
    """Fields of a step's state."""

    cost: StepCost
    charged: frozenset[int]


def _charge(state: StepState, event: AttemptEvent) -> _Charge:
    """Adds what an attempt cost, once. An attempt the fold never dispatched costs nothing."""
    if event.attempt in state.charged or event.attempt > state.attempt or event.model_class is None:
        return {}
    cost = state.cost
    added = StepCost(
        model_class=event.model_class,
        backend=event.backend,
        attempts=cost.attempts + 1,
        input_tokens=cost.input_tokens + event.usage.input_tokens,
        cached_tokens=cost.cached_tokens + event.usage.cached_tokens,
        output_tokens=cost.output_tokens + event.usage.output_tokens,
        service_ms=cost.service_ms + event.service_ms,
        cost_usd=cost.cost_usd + event.cost_usd,
    )
    return {"cost": added, "charged": state.charged | {event.attempt}}


def _charged_only(run: Run, event: AttemptEvent, state: StepState) -> Run:
    charge = _charge(state, event)
    return run.step(event.step, evolve(state, **charge)) if charge else run


# What becomes possible ------------------------------------------------------------


def _advance(run: Run, step_id: str, now: int) -> Changed:
    """One step is over: its dependents may start, or the run has come to its end."""
    if run.outcome is None and all(state.is_over for state in run.steps.values()):
        return _close(run, RunStatus.PARTIAL if run.missing else RunStatus.SUCCEEDED, now)
    assert run.plan is not None
    ready = [dependent for dependent in run.plan.dependents[step_id] if _needs_are_over(run, dependent)]
    return _start(run, ready, now)


def _needs_are_over(run: Run, step_id: str) -> bool:
    assert run.plan is not None
    pending = run.steps[step_id].status is StepStatus.PENDING
    return pending and all(run.steps[need].is_over for need in run.plan.steps[step_id].needs)


def _start(run: Run, step_ids: Sequence[str], now: int) -> Changed:
    if not step_ids:
        return run, ()
    steps = dict(run.steps)
    decisions: list[Decision] = []
    for step_id in step_ids:
        steps[step_id], decision = _dispatch(run, step_id, steps[step_id], now)
        decisions.append(decision)
    return evolve(run, steps=steps), tuple(decisions)


def _dispatch_one(run: Run, step_id: str, state: StepState, now: int) -> Changed:
    state, decision = _dispatch(run, step_id, state, now)
    return run.step(step_id, state), (decision,)


def _dispatch(run: Run, step_id: str, state: StepState, now: int) -> tuple[StepState, Dispatch]:
    """The next attempt of a step, on the link its state names."""
    started, plan = run.started, run.plan
    assert plan is not None
    assert isinstance(started, RunStarted)
    step = plan.steps[step_id]
    own_deadline = now + step.timeout_ms if step.timeout_ms is not None else started.deadline_at
    state = evolve(
        state,
        status=StepStatus.READY,
        attempt=state.attempt + 1,
        tries=state.tries + 1,
        ready_at=state.ready_at if state.attempt else now,
        timeout_at=own_deadline + STEP_TIMEOUT_GRACE_MS if own_deadline < started.deadline_at else None,
        retry_at=None,
    )
    ready = StepReady(
        run_id=run.run_id,
        tenant=started.tenant,
        traceparent=started.traceparent,
        task_id=ids.task_id(run.run_id, step_id, state.attempt),
        pipeline=started.graph.pipeline,
        step=plan.dispatchable[step_id],
        target=step.chain[state.fallback],
        fallback=state.fallback,
        attempt=state.attempt,
        input=started.input if step.reads_input else None,
        outputs=outputs_of(run, step.reads),
        priority=started.priority,
        session=started.session,
        sensitivity=started.sensitivity,
        variant=started.variants.get(step_id),
        deadline_at=started.deadline_at,
        step_deadline_at=min(own_deadline, started.deadline_at),
        ready_at=now,
    )
    return state, Dispatch(ready)


def outputs_of(run: Run, step_ids: tuple[str, ...]) -> dict[str, Output]:
    """Outputs by step; what was skipped or failed has none, and is `{}` in expressions."""
    found = {step_id: run.steps[step_id].output for step_id in step_ids}
    return {step_id: output for step_id, output in found.items() if output is not None}


# What goes wrong ------------------------------------------------------------


def _fail(run: Run, step_id: str, state: StepState, error: ErrorDetail, now: int) -> Changed:
    """Retry, else the next link of the chain, else what `on_failure` says."""
    assert run.plan is not None
    assert isinstance(run.started, RunStarted)
    step = run.plan.steps[step_id]
    error = error.model_copy(update={"step": step_id})
    state = evolve(state, error=error, timeout_at=None)
    due = now + _backoff_ms(run.run_id, step_id, state)
    if error.retryable and state.tries < step.max_attempts and due < run.started.deadline_at:
        return run.step(step_id, evolve(state, retry_at=due)), ()
    if state.fallback + 1 < len(step.chain):
        return _dispatch_one(run, step_id, evolve(state, fallback=state.fallback + 1, tries=0), now)
    failed = run.step(step_id, evolve(state, status=StepStatus.FAILED, over_at=now))
    if step.on_failure is OnFailure.CONTINUE:
        return _advance(failed, step_id, now)
    return _close(failed, RunStatus.FAILED, now, error)


def _backoff_ms(run_id: str, step_id: str, state: StepState) -> int:
    """Doubles from RETRY_BASE_MS to RETRY_CAP_MS; jitter of 0.5–1 from the task's id, so that every fold agrees."""
    full = min(RETRY_CAP_MS, RETRY_BASE_MS << (state.tries - 1))
    return round(full * (0.5 + crc32(ids.task_id(run_id, step_id, state.attempt).encode()) / 2**33))


def _apply_timers(run: Run, now: int) -> Changed:
    """Every step timer that is due at this stamp: time-outs fail the attempt, retries start the next one."""
    decisions: tuple[Decision, ...] = ()
    for step_id, state in run.steps.items():
        if run.outcome is None and (due := state.next_due) is not None and now >= due:
            run, more = _on_due(run, step_id, run.steps[step_id], now)
            decisions += more
    return run, decisions


def _on_due(run: Run, step_id: str, state: StepState, now: int) -> Changed:
    if state.retry_at is not None:
        return _dispatch_one(run, step_id, state, now)
    error = ErrorDetail(code=ErrorCode.DEADLINE_EXCEEDED, message="the step's timeout passed", step=step_id)
    return _fail(run, step_id, state, error, now)


def _close(run: Run, status: RunStatus, now: int, error: ErrorDetail | None = None) -> Changed:
    closed = run.closed(status, now, error)
    return closed, (Finish(closed),)


def _expired() -> ErrorDetail:
    return ErrorDetail(
        code=ErrorCode.DEADLINE_EXCEEDED, message="the deadline passed before the run was over", retryable=True
    )


def _cancelled(by: str) -> ErrorDetail:
    return ErrorDetail(code=ErrorCode.CANCELLED, message=f"cancelled by {by}")


def _step_kind(run: Run, step_id: str) -> StepKind:
    assert run.plan is not None
    return run.plan.steps[step_id].kind
