"""What a worker says about an attempt: the events it appends."""

from typing import NamedTuple

from schemas import ids
from schemas.base import LogTime, Output
from schemas.errors import ErrorCode, ErrorDetail
from schemas.events import StepCompleted, StepFailed
from schemas.tasks import InferenceTask
from schemas.usage import TokenUsage
from services.worker.domain.costs import cost_usd
from services.worker.domain.engine import NO_TOKENS

MAX_MESSAGE = 500
MAX_TENANT = 256


class Effort(NamedTuple):
    """What an attempt took. Times are milliseconds; `task_at` is the log's, the others are durations."""

    task_at: LogTime
    queue_ms: float
    """From the task's record to the engine, its cold part included."""
    cold_ms: float
    """The part of the queue in which the engine was not ready yet."""
    service_ms: float
    usage: TokenUsage


def effort(
    task_at: LogTime, started_at: LogTime, ready_at: LogTime, service_ms: float = 0.0, usage: TokenUsage = NO_TOKENS
) -> Effort:
    """From three moments of the log: the task's record, its start, and when the engine became ready."""
    queue_ms = max(0, started_at - task_at)
    return Effort(task_at, queue_ms, min(max(0, ready_at - task_at), queue_ms), service_ms, usage)


def completed(task: InferenceTask, took: Effort, output: Output, slots: int) -> StepCompleted:
    """The attempt's answer."""
    return StepCompleted(
        run_id=task.run_id, tenant=task.tenant, traceparent=task.traceparent,
        step=task.step, attempt=task.attempt, fallback=task.fallback,
        model_class=task.model_class, backend=task.backend,
        task_at=took.task_at, queue_ms=took.queue_ms, service_ms=took.service_ms, cold_ms=took.cold_ms,
        usage=took.usage, cost_usd=cost_usd(task.price, took.usage, took.service_ms, slots),
        output=output,
    )  # fmt: skip


def failed(task: InferenceTask, took: Effort, error: ErrorDetail, slots: int) -> StepFailed:
    """Why the attempt has no answer. What the engine spent on it is paid all the same."""
    return StepFailed(
        run_id=task.run_id, tenant=task.tenant, traceparent=task.traceparent,
        step=task.step, attempt=task.attempt, fallback=task.fallback,
        model_class=task.model_class, backend=task.backend,
        task_at=took.task_at, queue_ms=took.queue_ms, service_ms=took.service_ms, cold_ms=took.cold_ms,
        usage=took.usage, cost_usd=_spent(task, took, slots),
        error=error,
    )  # fmt: skip


def error_detail(step: str, code: ErrorCode, message: str, *, retryable: bool = False) -> ErrorDetail:
    """An error as a response shows it: one line, bounded."""
    return ErrorDetail(code=code, message=" ".join(message.split())[:MAX_MESSAGE], step=step, retryable=retryable)


def undecodable(task_id: str | None, tenant: str | None, task_at: LogTime, why: str) -> StepFailed | None:
    """The failure of a task that cannot be read, from its headers; None when they do not name it either."""
    try:
        run_id, step, attempt = ids.parse_task_id(task_id or "")
    except ValueError:
        return None
    if not tenant or len(tenant) > MAX_TENANT:
        return None
    error = error_detail(step, ErrorCode.INTERNAL, f"the task cannot be read: {why}")
    return StepFailed(run_id=run_id, tenant=tenant, step=step, attempt=attempt, task_at=task_at, error=error)


def _spent(task: InferenceTask, took: Effort, slots: int) -> float:
    """A task that never reached the engine costs nothing, not even the call."""
    return cost_usd(task.price, took.usage, took.service_ms, slots) if took.service_ms else 0.0
