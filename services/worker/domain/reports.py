"""What a worker says about an attempt: the events it appends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas import headers
from schemas.base import LogTime, Output
from schemas.errors import ErrorCode, ErrorDetail
from schemas.events import StepCompleted, StepFailed
from schemas.tasks import InferenceTask
from schemas.usage import TokenUsage
from services.worker.domain.costs import cost_usd

MAX_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class Effort:
    """What an attempt took. Times are milliseconds; `task_at` is the log's, the others are durations."""

    task_at: LogTime
    queue_ms: float = 0.0
    cold_ms: float = 0.0
    service_ms: float = 0.0
    usage: TokenUsage = field(default_factory=TokenUsage)


def waited(task_at: LogTime, started_at: LogTime, ready_at: LogTime) -> Effort:
    """The time before the engine: in the queue, and the part of it in which the engine was still cold."""
    queue_ms = max(0, started_at - task_at)
    return Effort(task_at, queue_ms=queue_ms, cold_ms=min(max(0, ready_at - task_at), queue_ms))


def completed(task: InferenceTask, effort: Effort, output: Output, slots: int) -> StepCompleted:
    """The attempt's answer."""
    return StepCompleted(
        run_id=task.run_id, tenant=task.tenant, traceparent=task.traceparent,
        step=task.step, attempt=task.attempt, fallback=task.fallback,
        model_class=task.model_class, backend=task.backend,
        task_at=effort.task_at, service_ms=effort.service_ms, cold_ms=effort.cold_ms,
        usage=effort.usage, cost_usd=cost_usd(task.price, effort.usage, effort.service_ms, slots),
        output=output,
    )  # fmt: skip


def failed(task: InferenceTask, effort: Effort, error: ErrorDetail, slots: int) -> StepFailed:
    """Why the attempt has no answer. What the engine spent on it is paid all the same."""
    return StepFailed(
        run_id=task.run_id, tenant=task.tenant, traceparent=task.traceparent,
        step=task.step, attempt=task.attempt, fallback=task.fallback,
        model_class=task.model_class, backend=task.backend,
        task_at=effort.task_at, service_ms=effort.service_ms, cold_ms=effort.cold_ms,
        usage=effort.usage, cost_usd=_spent(task, effort, slots),
        error=error,
    )  # fmt: skip


def error_detail(step: str, code: ErrorCode, message: str, *, retryable: bool = False) -> ErrorDetail:
    """An error as a response shows it: one line, bounded."""
    return ErrorDetail(code=code, message=" ".join(message.split())[:MAX_MESSAGE], step=step, retryable=retryable)


def undecodable(found: Mapping[str, str], task_at: LogTime, reason: str) -> StepFailed | None:
    """The failure of a task that cannot be read, from its headers; None when they do not name it either."""
    run_and_step, _, attempt = found.get(headers.TASK_ID, "").rpartition("#")
    run_id, _, step = run_and_step.partition("/")
    tenant = found.get(headers.TENANT, "")
    if not (run_id and step and tenant and attempt.isascii() and attempt.isdigit() and len(attempt) <= 9):
        return None
    if int(attempt) < 1:
        return None
    return StepFailed(
        run_id=run_id, tenant=tenant, step=step, attempt=int(attempt), task_at=task_at,
        error=error_detail(step, ErrorCode.INTERNAL, f"the task cannot be read: {reason}"),
    )  # fmt: skip


def _spent(task: InferenceTask, effort: Effort, slots: int) -> float:
    """A task that never reached the engine costs nothing, not even the call."""
    return cost_usd(task.price, effort.usage, effort.service_ms, slots) if effort.service_ms else 0.0
