"""The rules of the join written a second time, mutable and in the plainest words: what the fold is judged by.

Constants are written as numbers on purpose: one that changes in the fold changes what every run in a log does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from schemas.base import Output, RunStatus, StepStatus
from schemas.events import (
    AttemptEvent,
    Event,
    RunCancelled,
    RunFinished,
    RunRejected,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepSkipped,
)
from schemas.graphs import OnFailure, Step, StepKind
from schemas.usage import StepCost
from services.aggregator.domain.decisions import DeadLetter, Decision, Dispatch, Finish
from services.aggregator.domain.state import Partition, Run


def told(decisions: Iterable[Decision]) -> list[str]:
    """Decisions as the rules name them, in an order of their own."""
    return sorted(_told(decision) for decision in decisions)


def _told(decision: Decision) -> str:
    if isinstance(decision, Dispatch):
        ready = decision.ready
        return f"ready {ready.step.id}#{ready.attempt} on link {ready.fallback}"
    if isinstance(decision, Finish):
        assert decision.run.outcome is not None
        return f"finish {decision.run.outcome.status} as of {decision.run.outcome.decided_at}"
    if isinstance(decision, DeadLetter):
        return f"letter {decision.reason}"
    return f"publish, and stop the life until {decision.deadline_at}" if decision.deadline_at else "publish"


@dataclass
class Track:
    """One step of one run."""

    step: Step
    attempts: int = 0
    link: int = 0
    tries: int = 0
    gives_up_at: int | None = None
    retry_at: int | None = None
    over: StepStatus | None = None
    output: Output | None = None
    charges: dict[int, AttemptEvent] = field(default_factory=dict)

    @property
    def status(self) -> StepStatus:
        return self.over or (StepStatus.READY if self.attempts else StepStatus.PENDING)

    @property
    def runs(self) -> bool:
        return self.status is StepStatus.READY

    @property
    def cost(self) -> StepCost:
        """The sum over unique attempts."""
        paid = [self.charges[attempt] for attempt in self.charges]
        last = paid[-1] if paid else None
        return StepCost(
            model_class=last.model_class if last else None,
            backend=last.backend if last else None,
            attempts=len(paid),
            input_tokens=sum(event.usage.input_tokens for event in paid),
            cached_tokens=sum(event.usage.cached_tokens for event in paid),
            output_tokens=sum(event.usage.output_tokens for event in paid),
            service_ms=sum(event.service_ms for event in paid),
            cost_usd=sum(event.cost_usd for event in paid),
        )


@dataclass
class Life:
    """One run, from its opening to its outcome."""

    started: RunStarted | RunRejected
    tracks: dict[str, Track] = field(default_factory=dict)
    decided: str | None = None
    """`finish …`, once there is an outcome."""
    again_at: int = 0

    @property
    def deadline_at(self) -> int:
        assert isinstance(self.started, RunStarted)
        return self.started.deadline_at

    @property
    def next_due(self) -> int:
        if self.decided:
            return self.again_at
        timers = [track.retry_at or track.gives_up_at for track in self.tracks.values() if track.runs]
        return min([self.deadline_at, *(timer for timer in timers if timer is not None)])

    @property
    def missing(self) -> set[str]:
        """What the run goes, or would go, on without: not the step whose failure ends it."""
        return {
            step_id
            for step_id, track in self.tracks.items()
            if track.over is StepStatus.FAILED and track.step.on_failure is OnFailure.CONTINUE
        }


class Notes:
    """What must be remembered for a window, may be for a while longer, and must not be believed after it."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._notes: dict[str, tuple[str, int, int]] = {}

    def take(self, run_id: str, text: str, now: int) -> None:
        self._notes[run_id] = (text, now + self._window_ms, now)

    def passes(self, now: int) -> None:
        """Time stood at `now`; it may go back afterwards."""
        self._notes = {key: (text, until, max(newest, now)) for key, (text, until, newest) in self._notes.items()}

    def drop(self, run_id: str) -> None:
        self._notes.pop(run_id, None)

    def recall(self, run_id: str, now: int, kept: str | None) -> str | None:
        """`kept` is what the fold remembers: believed only where the rules leave it open."""
        text, until, newest = self._notes.get(run_id, (None, -1, -1))
        if now > until:
            return None
        return text if newest <= until else kept


class Rules:
    """Judges a partition record by record."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self.open: dict[str, Life] = {}
        self.finished = Notes(window_ms)
        self.cancelled = Notes(window_ms)

    def on(self, event: Event, now: int, before: Partition, after: Partition) -> list[str]:
        """What the fold must decide. The states are looked at only where the rules leave a choice."""
        self.finished.passes(now)
        self.cancelled.passes(now)
        life = self.open.get(event.run_id)
        if isinstance(event, RunStarted | RunRejected):
            decided = self._on_opening(event, now, before)
        elif life is None:
            decided = self._on_unknown(event, now, before)
        elif isinstance(event, RunFinished):
            decided = self._on_finished(life, now)
        elif life.decided:
            decided = _on_closing(life, now)
        else:
            decided = Verdict(life, now, after).on(event)
        return sorted(decided)

    def _on_opening(self, event: RunStarted | RunRejected, now: int, before: Partition) -> list[str]:
        life = self.open.get(event.run_id)
        kept = before.finished.get(event.run_id, now)
        digest = life.started.body_digest if life else self.finished.recall(event.run_id, now, kept)
        if digest is not None:
            return [] if digest == event.body_digest else ["letter idempotency_conflict"]
        if now - event.request.log_time > self._window_ms:
            return ["letter request_too_old"]
        life = self.open[event.run_id] = Life(event)
        if isinstance(event, RunRejected):
            return Verdict(life, now).close(RunStatus.FAILED)
        life.tracks = {step.id: Track(step) for step in event.graph.steps}
        kept = before.cancelled.get(event.run_id, now)
        if self.cancelled.recall(event.run_id, now, kept) is not None:
            self.cancelled.drop(event.run_id)
            return Verdict(life, now).close(RunStatus.CANCELLED)
        return Verdict(life, now).open()

    def _on_unknown(self, event: Event, now: int, before: Partition) -> list[str]:
        kept = before.finished.get(event.run_id, now)
        if isinstance(event, RunCancelled) and self.finished.recall(event.run_id, now, kept) is None:
            self.cancelled.take(event.run_id, event.cancelled_by, now)
        return []

    def _on_finished(self, life: Life, now: int) -> list[str]:
        del self.open[life.started.run_id]
        self.finished.take(life.started.run_id, life.started.body_digest, now)
        if isinstance(life.started, RunRejected):
            return ["publish"]
        return [f"publish, and stop the life until {life.deadline_at}"]


def _on_closing(life: Life, now: int) -> list[str]:
    assert life.decided is not None
    if now < life.again_at:
        return []
    life.again_at = now + 10_000
    return [life.decided]


class Verdict:
    """What one record means to one open run."""

    def __init__(self, life: Life, now: int, after: Partition | None = None) -> None:
        self._life = life
        self._now = now
        self._after = after
        self._decided: list[str] = []

    def open(self) -> list[str]:
        if self._now >= self._life.deadline_at:
            return self.close(RunStatus.EXPIRED)
        for track in self._tracks:
            if not track.step.needs:
                self._dispatch(track)
        return self._decided

    def on(self, event: Event) -> list[str]:
        if self._now >= self._life.deadline_at:
            return self.close(RunStatus.EXPIRED)
        if isinstance(event, RunCancelled):
            return self.close(RunStatus.CANCELLED)
        if isinstance(event, StepCompleted | StepFailed | StepSkipped) and event.step in self._life.tracks:
            self._on_step(self._life.tracks[event.step], event)
        for track in list(self._due()):
            if not self._life.decided:
                self._on_due(track)
        return self._decided

    def close(self, status: RunStatus) -> list[str]:
        self._life.decided = f"finish {status} as of {self._now}"
        self._life.again_at = self._now + 10_000
        self._decided.append(self._life.decided)
        return self._decided

    @property
    def _tracks(self) -> Iterable[Track]:
        return self._life.tracks.values()

    def _on_step(self, track: Track, event: StepCompleted | StepFailed | StepSkipped) -> None:
        is_dispatched = event.attempt <= track.attempts
        is_current = event.attempt == track.attempts and track.retry_at is None
        if isinstance(event, AttemptEvent) and is_dispatched and event.model_class is not None:
            track.charges.setdefault(event.attempt, event)
        if not track.runs:
            return
        if isinstance(event, StepCompleted) and is_dispatched:
            self._on_completed(track, event.output)
        elif isinstance(event, StepFailed) and is_current:
            self._on_failed(track, event.error.retryable)
        elif isinstance(event, StepSkipped) and is_current:
            self._over(track, StepStatus.SKIPPED)

    def _on_completed(self, track: Track, output: Output) -> None:
        track.output = output
        if track.step.kind is StepKind.GATE and output.value is not True:
            track.over = StepStatus.SUCCEEDED
            self.close(RunStatus.BLOCKED if output.value is False else RunStatus.FAILED)
        else:
            self._over(track, StepStatus.SUCCEEDED)

    def _on_failed(self, track: Track, retryable: bool) -> None:
        track.gives_up_at = None
        if retryable and track.tries < track.step.max_attempts and self._is_retried(track):
            return
        if track.link + 1 < len(track.step.chain):
            track.link += 1
            track.tries = 0
            self._dispatch(track)
        elif track.step.on_failure is OnFailure.CONTINUE:
            self._over(track, StepStatus.FAILED)
        else:
            track.over = StepStatus.FAILED
            self.close(RunStatus.FAILED)

    def _is_retried(self, track: Track) -> bool:
        """The wait is half to whole of 0.2 s, doubled with each try, at most 10 s. Which is the fold's to choose."""
        assert self._after is not None
        longest = min(10_000, 200 * 2 ** (track.tries - 1))
        run = self._after.open[self._life.started.run_id]
        assert isinstance(run, Run)
        track.retry_at = run.steps[track.step.id].retry_at
        if track.retry_at is None:
            assert self._now + longest >= self._life.deadline_at, "a retry was owed"
            return False
        assert longest / 2 <= track.retry_at - self._now <= longest
        assert track.retry_at < self._life.deadline_at
        return True

    def _over(self, track: Track, status: StepStatus) -> None:
        track.over = status
        if all(other.over for other in self._tracks):
            self.close(RunStatus.PARTIAL if self._life.missing else RunStatus.SUCCEEDED)
        for other in self._tracks:
            if track.step.id in other.step.needs and all(self._life.tracks[need].over for need in other.step.needs):
                self._dispatch(other)

    def _due(self) -> Iterator[Track]:
        for track in self._tracks:
            timer = track.retry_at or track.gives_up_at
            if track.runs and timer is not None and timer <= self._now:
                yield track

    def _on_due(self, track: Track) -> None:
        if track.retry_at is not None:
            self._dispatch(track)
        else:
            self._on_failed(track, retryable=False)

    def _dispatch(self, track: Track) -> None:
        track.attempts += 1
        track.tries += 1
        track.retry_at = track.gives_up_at = None
        if track.step.timeout_ms is not None and self._now + track.step.timeout_ms < self._life.deadline_at:
            track.gives_up_at = self._now + track.step.timeout_ms + 1_000
        self._decided.append(f"ready {track.step.id}#{track.attempts} on link {track.link}")
