"""The state that the fold makes of one events partition. Immutable: an old version stays whole."""

from dataclasses import dataclass, field

from immutables import Map

from schemas.base import Output, RunStatus, StepStatus
from schemas.errors import ErrorDetail
from schemas.events import RunRejected, RunStarted
from schemas.graphs import OnFailure, StepKind
from schemas.usage import StepCost
from services.aggregator.domain.evolve import evolve
from services.aggregator.domain.memory import Memory
from services.aggregator.domain.plans import Plan

STEP_TIMEOUT_GRACE_MS = 1_000
"""The worker aborts at the step's deadline; the fold waits this much longer before it gives the step up."""
FINISH_AGAIN_MS = 10_000
"""A closing run without a readable `run-finished` in the log after this is closed again."""
MAX_PLANS = 256
_OVER = (StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.SKIPPED)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where an attempt's time went, in milliseconds: from the event that ended it."""

    task_at: int | None = None
    service_ms: float = 0.0
    cold_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class StepState:
    """Where one step stands."""

    status: StepStatus = StepStatus.PENDING
    attempt: int = 0
    """The newest attempt dispatched, over all links of the chain."""
    fallback: int = 0
    tries: int = 0
    """Attempts within the current link."""
    ready_at: int = 0
    """Log time at which the first attempt became possible."""
    timeout_at: int | None = None
    """Log time at which the fold gives the current attempt up."""
    retry_at: int | None = None
    """Log time of the next attempt, when one is due."""
    over_at: int = 0
    output: Output | None = None
    error: ErrorDetail | None = None
    model_class: str | None = None
    backend: str | None = None
    won: Attempt = Attempt()
    cost: StepCost = field(default_factory=StepCost)
    charged: frozenset[int] = frozenset()
    """Attempts whose cost is counted: a repeated event must not charge twice."""

    @property
    def is_over(self) -> bool:
        """Nothing more will happen to it."""
        return self.status in _OVER

    @property
    def next_due(self) -> int | None:
        """Log time of its next timer."""
        if self.status is not StepStatus.READY:
            return None
        return self.retry_at if self.retry_at is not None else self.timeout_at


PENDING = StepState()
"""Where every step of every run begins."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, decided by one record."""

    status: RunStatus
    decided_at: int
    again_at: int
    """Log time at which `run-finished`, not seen by then, is asked for again."""
    error: ErrorDetail | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One open run."""

    started: RunStarted | RunRejected
    """As it came, but with the shared graph."""
    plan: Plan | None
    """None for a rejected run."""
    steps: dict[str, StepState]
    """Never changed in place."""
    outcome: Outcome | None = None
    """Set: the run is closing, and only `run-finished` counts."""

    @property
    def run_id(self) -> str:
        """Names the run in every topic."""
        return self.started.run_id

    @property
    def graph_digest(self) -> str:
        """Names its plan; empty for a rejected run, which has none."""
        return self.started.graph_digest if isinstance(self.started, RunStarted) else ""

    def step(self, step_id: str, state: StepState) -> "Run":
        """The run with one step changed."""
        return evolve(self, steps={**self.steps, step_id: state})

    def closed(self, status: RunStatus, at: int, error: ErrorDetail | None = None) -> "Run":
        """The run, decided."""
        return evolve(self, outcome=Outcome(status, at, at + FINISH_AGAIN_MS, error))

    @property
    def missing(self) -> tuple[str, ...]:
        """Steps the run had to do without. Skipped steps and gates are never missing."""
        if self.plan is None:
            return ()
        return tuple(
            step.id
            for step in self.plan.graph.steps
            if step.kind is not StepKind.GATE
            and step.on_failure is OnFailure.CONTINUE
            and self.steps[step.id].status is StepStatus.FAILED
        )

    @property
    def next_due(self) -> int:
        """Log time of the next timer: deadline, step time-out or retry; for a closing run, of another try."""
        if self.outcome is not None:
            return self.outcome.again_at
        assert isinstance(self.started, RunStarted)
        dues = [due for state in self.steps.values() if (due := state.next_due) is not None]
        return min([self.started.deadline_at, *dues])


@dataclass(frozen=True, slots=True)
class PackedRun:
    """An open run as a snapshot holds it, until something happens to it.

    A new owner has thousands of them: unpacked all at once they would keep it from acting for seconds.
    """

    next_due: int
    graph_digest: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Partition:
    """All that one events partition amounts to."""

    finished: Memory[str]
    """Body digest of runs that are over."""
    cancelled: Memory[str]
    """Runs cancelled before they started, and by whom."""
    open: "Map[str, Run | PackedRun]" = Map()  # noqa: RUF009 — an immutables.Map is immutable
    plans: "Map[str, Plan]" = Map()  # noqa: RUF009
    """By graph digest: runs of one graph share it."""
    prune_at: int = MAX_PLANS
    """How many plans there may be before those that no open run uses are looked for."""

    @classmethod
    def empty(cls, window_ms: int) -> "Partition":
        """Before the first record. `window_ms` is W, the idempotency window."""
        return cls(finished=Memory(window_ms), cancelled=Memory(window_ms))

    def with_run(self, run: Run) -> "Partition":
        """The partition with one run opened or changed."""
        return evolve(self, open=self.open.set(run.run_id, run))
