"""An attempt that is over, as spans: its wait, the cold part of it, and its time in the engine."""

from collections.abc import Iterator

from schemas.events import StepCompleted, StepFailed
from schemas.tasks import InferenceTask
from services.chassis.tracing import Kind, Span, Trace, step_span
from services.worker.domain.reports import Effort


def spans(task: InferenceTask, event: StepCompleted | StepFailed, took: Effort) -> Iterator[Span]:
    """Within the step's, of which the aggregator tells; none for a run that is not sampled.

    The wait begins with the task's record.
    """
    trace, name, attempt = Trace.of(task), task.model_class, f"{task.step}#{task.attempt}"
    if not trace.sampled:
        return
    step, queue = step_span(task.step), f"queue/{attempt}"
    began, about = took.task_at + took.queue_ms, _about(task)
    error = event.error.code if isinstance(event, StepFailed) else None
    unserved = None if took.service_ms else error
    yield Span(f"queue {name}", trace, queue, step, took.task_at, began, Kind.CONSUMER, about, error=unserved)
    if took.cold_ms:
        yield Span(f"cold start {name}", trace, f"cold/{attempt}", queue, took.task_at, took.task_at + took.cold_ms)
    if took.service_ms:
        ended, about = began + took.service_ms, {**about, **_spent(event, took)}
        yield Span(
            f"service {name}", trace, f"service/{attempt}", step, began, ended, Kind.CLIENT, about, error=error
        )


def _about(task: InferenceTask) -> dict[str, str | int | float]:
    return {
        "headway.tenant": task.tenant,
        "headway.pipeline": task.pipeline,
        "headway.step": task.step,
        "headway.attempt": task.attempt,
        "headway.model_class": task.model_class,
        "headway.backend": task.backend,
        "headway.lane": task.lane,
    }


def _spent(event: StepCompleted | StepFailed, took: Effort) -> dict[str, str | int | float]:
    """Tokens by the names that OpenTelemetry gives them; what a model has none of is left out."""
    figures = {
        "gen_ai.usage.input_tokens": took.usage.input_tokens,
        "gen_ai.usage.output_tokens": took.usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": took.usage.cached_tokens,
        "headway.cost_usd": event.cost_usd,
    }
    return {name: figure for name, figure in figures.items() if figure}
