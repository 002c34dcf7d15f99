"""Runs without faults: every dispatched attempt gets the answer that a script has for it, in any order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from hypothesis import strategies as st

from schemas.base import StepStatus
from schemas.graphs import Graph, Step, StepKind
from schemas.joins import StepReady
from services.aggregator.domain.decisions import Decision, Dispatch
from tests.unit.aggregator.graphs import graphs
from tests.unit.aggregator.log import Log, only

Answer = Literal["ok", "retryable", "permanent", "skip"]
ANSWERS: st.SearchStrategy[Answer] = st.sampled_from(["ok", "retryable", "retryable", "permanent", "skip"])
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Script:
    """A graph, and what happens to the attempts of its steps; those beyond the script succeed."""

    graph: Graph
    answers: Mapping[str, Sequence[Answer]]

    def of(self, ready: StepReady) -> Answer:
        said = self.answers[ready.step.id]
        return said[ready.attempt - 1] if ready.attempt <= len(said) else "ok"

    def end_of(self, step: Step) -> tuple[StepStatus, int]:
        """How a step ends and after how many attempts: link by link, try by try."""
        attempt = 0
        for _link in step.chain:
            for _try in range(step.max_attempts):
                said = self.answers[step.id]
                answer = said[attempt] if attempt < len(said) else "ok"
                attempt += 1
                if answer in ("ok", "skip"):
                    return (StepStatus.SUCCEEDED if answer == "ok" else StepStatus.SKIPPED), attempt
                if answer == "permanent":
                    break
        return StepStatus.FAILED, attempt


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Without time-outs: nothing but the script decides."""
    drawn = draw(graphs())
    steps = tuple(step.model_copy(update={"timeout_ms": None}) for step in drawn.steps)
    answers = {step.id: draw(st.lists(ANSWERS, max_size=9)) for step in steps}
    return Script(drawn.model_copy(update={"steps": steps}), answers)


@dataclass
class Played:
    """A run that was played to its end."""

    log: Log
    ready: list[StepReady] = field(default_factory=list)
    """Everything dispatched, in order."""
    answered: int = 0


def play(script: Script, luck: Random) -> Played:
    """Answers whatever is dispatched, in the order that luck gives; time passes only when nothing else can."""
    log = Log()
    played = Played(log)
    waiting = _dispatched(played, log.start(script.graph, deadline_at=log.now + HOUR_MS))
    while log.status is None:
        if waiting:
            ready = waiting.pop(luck.randrange(len(waiting)))
            waiting += _dispatched(played, _answer(log, ready, script.of(ready)))
            played.answered += 1
        else:
            waiting += _dispatched(played, log.tick(log.run.next_due - log.now))
    return played


def _dispatched(played: Played, decided: tuple[Decision, ...]) -> list[StepReady]:
    found = [decision.ready for decision in only(Dispatch, decided)]
    played.ready += found
    return found


def _answer(log: Log, ready: StepReady, answer: Answer) -> tuple[Decision, ...]:
    step, attempt = ready.step.id, ready.attempt
    if answer == "ok":
        value = True if ready.step.kind is StepKind.GATE else f"{step} says so"
        return log.done(step, value, attempt=attempt, after_ms=7, service_ms=3.0, fallback=ready.fallback)
    if answer == "skip":
        return log.skip(step, attempt)
    return log.fail(step, attempt=attempt, retryable=answer == "retryable")
