"""What the runs that are open will still call: told by their graphs, as soon as they have started.

Every event of a run is a fact here, however often it comes: the log repeats itself after a crash.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from schemas.base import RunStatus
from schemas.graphs import Graph, Step
from services.autoscaler.domain.branches import Branches, backend_of, calls
from services.autoscaler.domain.call_rates import CallRates

TELLING = (RunStatus.SUCCEEDED, RunStatus.PARTIAL, RunStatus.BLOCKED)
"""Runs that went where their graph led them. A cancelled one says nothing about the steps it did not reach."""
GRACE_MS = 60_000
"""After a run's deadline, when its end was not seen."""


class Need(NamedTuple):
    """Of one queue."""

    probability: float
    """That at least one open run will call it."""
    calls: float
    """How many calls are expected."""


class _Run(NamedTuple):
    pipeline: str
    deadline_ms: float
    undecided: dict[str, Step]
    """Its model steps that have neither run nor been skipped."""


class OpenRuns:
    """All of them, and what their ends teach."""

    def __init__(self, branches: Branches) -> None:
        self._branches = branches
        self._rates = CallRates(branches)
        self._runs: dict[str, _Run] = {}
        self._called: set[str] = set()
        self._undecided: Counter[tuple[str, str]] = Counter()
        self._steps: dict[tuple[str, str], Step] = {}

    def has_undecided(self, run_id: str) -> bool:
        """Whether it may still call something."""
        return run_id in self._runs and bool(self._runs[run_id].undecided)

    def called(self) -> set[str]:
        """What runs were seen to have called since this was last asked: `class.backend`, or `class`."""
        called, self._called = self._called, set()
        return called

    def calls_per_s(self, now_ms: int) -> Mapping[str, float]:
        """By model class, how often the runs that start will call it; asked at every look."""
        self._rates.look(now_ms)
        return self._rates.per_s()

    def begin_rates(self) -> None:
        """From now on: runs that were read all at once have not started so."""
        self._rates.begin()

    def start(self, run_id: str, graph: Graph, deadline_ms: float) -> None:
        """A run has started; again, if it is open already, which changes nothing."""
        if run_id in self._runs:
            return
        self._rates.start(graph)
        steps = {step.id: step for step in calls(graph)}
        self._runs[run_id] = _Run(graph.pipeline, deadline_ms, steps)
        for step in steps.values():
            self._undecided[graph.pipeline, step.id] += 1
            self._steps[graph.pipeline, step.id] = step

    def decide(self, run_id: str, name: str, *, taken: bool, backend: str | None = None) -> None:
        """A step of a run was called, or will not be. `backend`: the one that was called, where that is known."""
        run = self._runs.get(run_id)
        step = run.undecided.pop(name, None) if run else None
        if run is None or step is None:
            return
        self._branches.learn(run.pipeline, name, taken=taken)
        self._one_less(run.pipeline, name)
        if taken:
            self._called.add(f"{step.chain[0].model_class}.{backend}" if backend else backend_of(step))

    def end(self, run_id: str, *, teaches: bool) -> None:
        """A run is over. `teaches`: the steps that it has not reached are steps that it did not take."""
        run = self._runs.pop(run_id, None)
        for name in run.undecided if run else ():
            assert run is not None
            if teaches:
                self._branches.learn(run.pipeline, name, taken=False)
            self._one_less(run.pipeline, name)

    def forget_overdue(self, now_ms: float) -> None:
        """Runs whose end was not seen, a minute after their deadline."""
        for run_id in [run_id for run_id, run in self._runs.items() if run.deadline_ms + GRACE_MS < now_ms]:
            self.end(run_id, teaches=False)

    def needs(self, label_of: Callable[[Step], str] = backend_of) -> Mapping[str, Need]:
        """By queue label; no queue that nothing open may call. `label_of`: the queue that a step's calls go to."""
        never: defaultdict[str, float] = defaultdict(lambda: 1.0)
        expected: defaultdict[str, float] = defaultdict(float)
        for (pipeline, name), runs in self._undecided.items():
            step = self._steps[pipeline, name]
            share, label = self._branches.share(pipeline, step), label_of(step)
            never[label] *= math.pow(1.0 - share, runs)
            expected[label] += share * runs
        return {label: Need(1.0 - none, expected[label]) for label, none in never.items()}

    def _one_less(self, pipeline: str, name: str) -> None:
        self._undecided[pipeline, name] -= 1
        if not self._undecided[pipeline, name]:
            del self._undecided[pipeline, name], self._steps[pipeline, name]
