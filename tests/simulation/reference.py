"""What a run's events amount to, said a second time: plain, mutable, slow, and none of it the services' code.

The fold is compared with this. Both would have to have the same mistake for it to stay unseen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

from schemas.errors import ErrorCode
from schemas.events import (
    Event,
    RunCancelled,
    RunFinished,
    RunRejected,
    RunStarted,
    StepCompleted,
    StepEvent,
    StepFailed,
    StepSkipped,
)
from schemas.graphs import OnFailure, Step, StepKind

GRACE_MS = 1_000
FIRST_RETRY_MS = 200
LAST_RETRY_MS = 10_000


@dataclass
class StepSoFar:
    """One step."""

    step: Step
    status: str = "pending"
    attempts: int = 0
    link: int = 0
    tries: int = 0
    timeout_at: int | None = None
    retry_at: int | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("succeeded", "failed", "skipped")


@dataclass
class RunSoFar:
    """One run, event by event."""

    run_id: str
    status: str | None = None
    """How it ended; None while it is open."""
    decided_at: int = 0
    steps: dict[str, StepSoFar] = field(default_factory=dict)
    _deadline_at: int = 0
    _is_cancelled: bool = False
    _is_finished: bool = False

    def feed(self, event: Event, now: int) -> None:
        """The next event in the log's order."""
        if self.status is not None or self._is_finished:
            return
        if isinstance(event, RunStarted | RunRejected):
            self._open(event, now)
        elif not self.steps:
            self._is_cancelled |= isinstance(event, RunCancelled)
        elif isinstance(event, RunFinished):
            self._is_finished = True
        elif now >= self._deadline_at:
            self._end("expired", now)
        else:
            self._happened(event, now)
            self._time_passed(now)

    @property
    def missing(self) -> tuple[str, ...]:
        """Steps that the run did without."""
        return tuple(name for name, step in self.steps.items() if step.status == "failed" and _may_fail(step.step))

    def _open(self, event: RunStarted | RunRejected, now: int) -> None:
        if self.steps:
            return
        if isinstance(event, RunRejected):
            self._end("failed", now)
            return
        self.steps = {step.id: StepSoFar(step) for step in event.graph.steps}
        self._deadline_at = event.deadline_at
        if self._is_cancelled or now >= event.deadline_at:
            self._end("cancelled" if self._is_cancelled else "expired", now)
        else:
            self._start_what_can(now)

    def _end(self, status: str, now: int) -> None:
        if self.status is None:
            self.status, self.decided_at = status, now

    def _happened(self, event: Event, now: int) -> None:
        if isinstance(event, RunCancelled):
            self._end("cancelled", now)
        elif isinstance(event, StepEvent) and event.step in self.steps:
            self._step_happened(self.steps[event.step], event, now)

    def _step_happened(self, step: StepSoFar, event: StepEvent, now: int) -> None:
        if step.status != "ready" or event.attempt > step.attempts:
            return
        if isinstance(event, StepCompleted):
            self._completed(step, event, now)
        elif event.attempt == step.attempts and step.retry_at is None:
            if isinstance(event, StepFailed):
                self._failed(step, now, retryable=event.error.retryable)
            elif isinstance(event, StepSkipped):
                self._over(step, "skipped", now)

    def _completed(self, step: StepSoFar, event: StepCompleted, now: int) -> None:
        step.link = event.fallback
        if step.step.kind is StepKind.GATE and event.output.value is not True:
            step.status = "succeeded"
            self._end("blocked" if event.output.value is False else "failed", now)
        else:
            self._over(step, "succeeded", now)

    def _failed(self, step: StepSoFar, now: int, *, retryable: bool) -> None:
        step.timeout_at = None
        due = now + self._backoff_ms(step)
        if retryable and step.tries < step.step.max_attempts and due < self._deadline_at:
            step.retry_at = due
        elif step.link + 1 < len(step.step.chain):
            step.link, step.tries = step.link + 1, 0
            self._attempt(step, now)
        elif _may_fail(step.step):
            self._over(step, "failed", now)
        else:
            step.status = "failed"
            self._end("failed", now)

    def _backoff_ms(self, step: StepSoFar) -> int:
        full = min(LAST_RETRY_MS, FIRST_RETRY_MS << (step.tries - 1))
        draw = crc32(f"{self.run_id}/{step.step.id}#{step.attempts}".encode()) / 2**32
        return round(full * (1 + draw) / 2)

    def _over(self, step: StepSoFar, status: str, now: int) -> None:
        step.status = status
        if all(other.is_over for other in self.steps.values()):
            self._end("partial" if self.missing else "succeeded", now)
        else:
            self._start_what_can(now)

    def _start_what_can(self, now: int) -> None:
        for step in self.steps.values():
            if step.status == "pending" and all(self.steps[need].is_over for need in step.step.needs):
                self._attempt(step, now)

    def _attempt(self, step: StepSoFar, now: int) -> None:
        step.status, step.retry_at, step.timeout_at = "ready", None, None
        step.attempts += 1
        step.tries += 1
        if step.step.timeout_ms is not None and now + step.step.timeout_ms < self._deadline_at:
            step.timeout_at = now + step.step.timeout_ms + GRACE_MS

    def _time_passed(self, now: int) -> None:
        for step in self.steps.values():
            if self.status is not None or step.status != "ready":
                continue
            if step.retry_at is not None:
                if now >= step.retry_at:
                    self._attempt(step, now)
            elif step.timeout_at is not None and now >= step.timeout_at:
                self._failed(step, now, retryable=False)


def _may_fail(step: Step) -> bool:
    return step.on_failure is OnFailure.CONTINUE and step.kind is not StepKind.GATE


def amounts_to(run_id: str, events: Sequence[tuple[int, Event]]) -> RunSoFar:
    """All of a run's events, with their stamps."""
    run = RunSoFar(run_id)
    for stamp, event in events:
        run.feed(event, stamp)
    return run


OUTPUT_FAILED = (ErrorCode.INVALID_OUTPUT, ErrorCode.CONTENT_TOO_LARGE)
"""A run that came to its end, but whose output could not be had."""
