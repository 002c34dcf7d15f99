"""What a ready step becomes: a task, or an event the orchestrator appends itself. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from schemas.base import BlobRef, Json, Output, Priority
from schemas.errors import ErrorCode, ErrorDetail
from schemas.events import StepCompleted, StepFailed, StepSkipped
from schemas.joins import StepReady
from schemas.models import Queue
from schemas.tasks import InferenceTask
from services.orchestrator.domain.components import Components


def skipped(ready: StepReady) -> StepSkipped:
    """`when` was false."""
    return StepSkipped(**_attempt(ready))


def completed(ready: StepReady, output: Output) -> StepCompleted:
    """A gate, a value, or a fallback's value."""
    return StepCompleted(**_attempt(ready), output=output)


def failed(ready: StepReady, code: ErrorCode, message: str, *, retryable: bool = False) -> StepFailed:
    """An expression failed, or there is nowhere to run the step."""
    return StepFailed(
        **_attempt(ready),
        model_class=ready.target.model_class,
        backend=ready.target.backend,
        error=ErrorDetail(code=code, message=message, step=ready.step.id, retryable=retryable),
    )


def task(ready: StepReady, queue: Queue, value: Json, ref: BlobRef | None) -> InferenceTask:
    """The call a worker executes, with its price of the day."""
    return InferenceTask(
        **_attempt(ready),
        task_id=ready.task_id,
        pipeline=ready.pipeline,
        model_class=queue.model_class,
        backend=queue.backend,
        price=queue.price,
        lane=ready.priority,
        input=value,
        input_ref=ref,
        session=ready.session,
        sensitivity=ready.sensitivity,
        variant=ready.variant,
        stream=ready.step.stream,
        deadline_at=ready.deadline_at,
        step_deadline_at=ready.step_deadline_at,
    )


def _attempt(ready: StepReady) -> dict[str, Any]:
    """What names an attempt, in every message about it."""
    return {
        "run_id": ready.run_id,
        "tenant": ready.tenant,
        "traceparent": ready.traceparent,
        "step": ready.step.id,
        "attempt": ready.attempt,
        "fallback": ready.fallback,
    }


def candidates(ready: StepReady, queues: Mapping[tuple[str, str], Queue]) -> Sequence[Queue]:
    """The queue of the target's class and backend; every backend's, in their order, when none is named."""
    wanted, backend = ready.target.model_class, ready.target.backend
    return [queue for (name, of), queue in queues.items() if name == wanted and backend in (None, of)]


def route(among: Iterable[Queue], priority: Priority, components: Components) -> tuple[Queue, Sequence[int]] | None:
    """The first queue that may be given the task, and the partitions for it; None when there is none."""
    for queue in among:
        partitions = components.partitions(queue.model_class, queue.backend, queue.lanes.of(priority))
        if partitions:
            return queue, partitions
    return None


def nowhere(ready: StepReady, among: Sequence[Queue]) -> str:
    """Why a step cannot be given to anybody."""
    if not among:
        return f"no backend '{ready.target.model_class}.{ready.target.backend or '*'}' in the live configuration"
    names = ", ".join(f"{queue.model_class}.{queue.backend}" for queue in among)
    return f"the circuit breaker of {names} is open"
