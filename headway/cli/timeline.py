"""A run's timeline, from its events: pure, for finished and unfinished runs alike.

All times are log times. A step is enabled when its needs are over; an attempt's record then waits (cold: no worker is
ready; queue: no slot is free) and is served; what is left of the step is coordination, the plane's own share.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.base import StepStatus
from schemas.errors import ErrorDetail
from schemas.events import (
    Event,
    RunCancelled,
    RunFinished,
    RunRejected,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepSkipped,
)
from schemas.graphs import Step, StepKind
from schemas.responses import InferenceResponse

RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that ended. Times in milliseconds since the request, then durations."""

    number: int
    fallback: int
    backend: str | None
    succeeded: bool
    ended_ms: float
    queue_ms: float
    cold_ms: float
    service_ms: float
    cost_usd: float
    error: ErrorDetail | None

    @property
    def task_ms(self) -> float:
        """When its task stood in the log (when it ended, if there was no task)."""
        return self.ended_ms - self.queue_ms - self.cold_ms - self.service_ms


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """One step. `enabled_ms` is None while a need is open; `ended_ms` while it is open itself."""

    step: str
    kind: StepKind
    status: StepStatus
    model_class: str | None
    backend: str | None
    enabled_ms: float | None
    ended_ms: float | None
    attempts: tuple[Attempt, ...] = ()
    critical: bool = False

    @property
    def queue_ms(self) -> float:
        return sum(attempt.queue_ms for attempt in self.attempts)

    @property
    def cold_ms(self) -> float:
        return sum(attempt.cold_ms for attempt in self.attempts)

    @property
    def service_ms(self) -> float:
        return sum(attempt.service_ms for attempt in self.attempts)

    @property
    def fallback(self) -> int:
        return self.attempts[-1].fallback if self.attempts else 0

    @property
    def error(self) -> ErrorDetail | None:
        """Of the last attempt, if it failed."""
        return self.attempts[-1].error if self.attempts else None


@dataclass(frozen=True, slots=True)
class Charge:
    """What all attempts of one step cost; the model class is that of the last one."""

    step: str
    model_class: str
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run as its log tells it. `total_ms` of an unfinished run is the age of its newest event."""

    run_id: str
    request_id: str
    tenant: str
    pipeline: str
    version: int | None
    status: str
    total_ms: float
    steps: tuple[StepTimeline, ...]
    critical_path: tuple[str, ...]
    cost_usd: float
    error: ErrorDetail | None = None
    cancelled_by: str | None = None
    response: InferenceResponse | None = None
    opened_ms: float = 0.0
    """When its admission stood in the log."""
    charges: tuple[Charge, ...] = ()


def timeline(events: Iterable[tuple[int, Event]]) -> Timeline | None:
    """The timeline of one run from its (log time, event) pairs in log order; None before the run began.

    What stands behind the first run-finished has no effect on the run, and none here.
    """
    log = _until_finished(events)
    opening = next((event for _, event in log if isinstance(event, RunStarted | RunRejected)), None)
    if opening is None:
        return None
    finished = next((event for _, event in log if isinstance(event, RunFinished)), None)
    response = finished.response if finished else None
    steps = _steps(opening, log, response) if isinstance(opening, RunStarted) else ()
    path = response.timing.critical_path if response else _critical_path(opening, steps)
    cancelled = next((event for _, event in log if isinstance(event, RunCancelled)), None)
    charges = _charges(steps, response)
    return Timeline(
        run_id=opening.run_id,
        request_id=opening.request_id,
        tenant=opening.tenant,
        pipeline=opening.graph.pipeline if isinstance(opening, RunStarted) else opening.pipeline,
        version=opening.graph.version if isinstance(opening, RunStarted) else None,
        status=response.status if response else RUNNING,
        total_ms=response.timing.total_ms if response else log[-1][0] - opening.request.log_time,
        steps=tuple(replace(step, critical=step.step in path) for step in steps),
        critical_path=path,
        cost_usd=response.usage.cost_usd if response else sum(charge.cost_usd for charge in charges),
        error=response.error if response else getattr(opening, "error", None),
        cancelled_by=cancelled.cancelled_by if cancelled else None,
        response=response,
        opened_ms=next(stamp for stamp, event in log if event is opening) - opening.request.log_time,
        charges=charges,
    )


def _until_finished(events: Iterable[tuple[int, Event]]) -> list[tuple[int, Event]]:
    log = []
    for stamp, event in events:
        log.append((stamp, event))
        if isinstance(event, RunFinished):
            break
    return log


def _charges(steps: Sequence[StepTimeline], response: InferenceResponse | None) -> tuple[Charge, ...]:
    """As the outcome has it: what came after the decision is not paid for. Until then, as the attempts tell."""
    if response is not None:
        paid = response.usage.by_step.items()
        return tuple(Charge(step, cost.model_class or "", cost.cost_usd) for step, cost in paid)
    costs = ((step, sum(attempt.cost_usd for attempt in step.attempts)) for step in steps if step.attempts)
    return tuple(Charge(step.step, step.model_class or "", cost) for step, cost in costs if step.model_class)


def _steps(
    started: RunStarted, log: Sequence[tuple[int, Event]], response: InferenceResponse | None
) -> tuple[StepTimeline, ...]:
    began = started.request.log_time
    opened_ms = next(stamp for stamp, event in log if event is started) - began
    ended = {step.id: _ended(step, log, began) for step in started.graph.steps}
    steps = (_step(step, log, began, opened_ms, ended) for step in started.graph.steps)
    if response is None:
        return tuple(steps)
    reports = response.steps
    return tuple(replace(step, status=reports[step.step].status) if step.step in reports else step for step in steps)


def _step(
    step: Step,
    log: Sequence[tuple[int, Event]],
    began: int,
    opened_ms: float,
    ended: Mapping[str, tuple[StepStatus, float] | None],
) -> StepTimeline:
    own = ended[step.id]
    needs = [ended.get(need) for need in step.needs]
    enabled_ms = None if None in needs else max([opened_ms, *(need[1] for need in needs if need)])
    open_status = StepStatus.PENDING if enabled_ms is None else StepStatus.READY
    attempts = _attempts(step, log, began)
    target = step.chain[attempts[-1].fallback if attempts else 0] if step.chain else None
    return StepTimeline(
        step=step.id,
        kind=step.kind,
        status=own[0] if own else open_status,
        model_class=target.model_class if target else None,
        backend=(attempts[-1].backend if attempts else target.backend) if target else None,
        enabled_ms=enabled_ms,
        ended_ms=own[1] if own else None,
        attempts=attempts,
    )


def _ended(step: Step, log: Sequence[tuple[int, Event]], began: int) -> tuple[StepStatus, float] | None:
    """How and when a step ended; None while it is open."""
    failures: Counter[int] = Counter()
    for stamp, event in log:
        if isinstance(event, StepCompleted) and event.step == step.id:
            return StepStatus.SUCCEEDED, stamp - began
        if isinstance(event, StepSkipped) and event.step == step.id:
            return StepStatus.SKIPPED, stamp - began
        if isinstance(event, StepFailed) and event.step == step.id:
            failures[event.fallback] += 1
            spent = not event.error.retryable or failures[event.fallback] >= step.max_attempts
            if spent and event.fallback >= len(step.chain) - 1:
                return StepStatus.FAILED, stamp - began
    return None


def _attempts(step: Step, log: Sequence[tuple[int, Event]], began: int) -> tuple[Attempt, ...]:
    """Each attempt once, up to the one that completed the step."""
    found: dict[int, Attempt] = {}
    for stamp, event in log:
        if not isinstance(event, StepCompleted | StepFailed) or event.step != step.id or event.attempt in found:
            continue
        found[event.attempt] = _attempt(stamp, event, began)
        if isinstance(event, StepCompleted):
            break
    return tuple(found.values())


def _attempt(stamp: int, event: StepCompleted | StepFailed, began: int) -> Attempt:
    waited = 0.0 if event.task_at is None else max(0.0, stamp - event.task_at - event.service_ms - event.cold_ms)
    return Attempt(
        number=event.attempt,
        fallback=event.fallback,
        backend=event.backend,
        succeeded=isinstance(event, StepCompleted),
        ended_ms=stamp - began,
        queue_ms=waited,
        cold_ms=event.cold_ms,
        service_ms=event.service_ms,
        cost_usd=event.cost_usd,
        error=event.error if isinstance(event, StepFailed) else None,
    )


def _critical_path(opening: RunStarted | RunRejected, steps: Sequence[StepTimeline]) -> tuple[str, ...]:
    """Of an unfinished run: from the step that ended last (or is open), back along the needs that ended last."""
    if not isinstance(opening, RunStarted):
        return ()
    needs = {step.id: step.needs for step in opening.graph.steps}
    ends = {step.step: step.ended_ms if step.ended_ms is not None else float("inf") for step in steps}
    begun = [step for step in steps if step.enabled_ms is not None]
    path: list[str] = []
    current = max(begun, key=lambda step: ends[step.step]).step if begun else None
    while current is not None:
        path.append(current)
        current = max(needs[current], key=ends.__getitem__, default=None)
    return tuple(reversed(path))
