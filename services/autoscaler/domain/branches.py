"""How often a pipeline takes each of its steps, learned from runs; old runs count less and less."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.graphs import Graph, Step, StepKind
from services.autoscaler.domain.learned import MAX_STEPS, LearnedStep

MEMORY_RUNS, MEMORY_S = 500.0, 300.0
"""All runs together weigh as so many, or as those of so long where these are more: half of what is known comes from
the last 350. Of fewer, chance would make a quarter a third, and another half as many workers. Where hundreds start
each second, who looks every second sees another five hundred each time, and is led by the most extreme of them.
"""
PRIOR_WEIGHT = 2.0
"""In runs. What is assumed before any is seen counts as much as two of them (the rule of succession)."""


def calls(graph: Graph) -> list[Step]:
    """The steps that call a model class; the orchestrator does the others itself."""
    return [step for step in graph.steps if step.kind is StepKind.MODEL and step.chain and step.chain[0].model_class]


def backend_of(step: Step) -> str:
    """What it calls: `class.backend` where it names one, else `class`."""
    target = step.chain[0]
    return f"{target.model_class}.{target.backend}" if target.backend else str(target.model_class)


ASSUMED = 0.75
"""Of a condition, before a run is seen: likely enough to start its class for the very first run, which would wait for
one start after another otherwise; one run that does not take it is enough to start none for the next.
"""


def assumed(step: Step) -> float:
    """The share of runs that take a step, before one is seen: a condition may be false, nothing else stops it."""
    return ASSUMED if step.when is not None else 1.0


@dataclass(slots=True)
class _Seen:
    taken: float = 0.0
    runs: float = 0.0

    def learn(self, *, taken: bool, memory: float) -> None:
        """One run more. Older ones lose what all together weigh more than `memory` of them."""
        keep = (memory - 1.0) / max(memory - 1.0, self.runs)
        self.taken = self.taken * keep + taken
        self.runs = self.runs * keep + 1.0


class Branches:
    """Of all pipelines, by step."""

    def __init__(self) -> None:
        self._seen: defaultdict[tuple[str, str], _Seen] = defaultdict(_Seen)
        self._memory: dict[str, float] = {}
        """By pipeline, in runs."""

    def pace(self, pipeline: str, runs_per_s: float) -> None:
        """How often runs of a pipeline start: what is to be remembered of it."""
        self._memory[pipeline] = max(MEMORY_RUNS, MEMORY_S * runs_per_s)

    def learned(self) -> tuple[LearnedStep, ...]:
        """What later ones shall know; of the newest steps, where there are very many."""
        newest = list(self._seen.items())[-MAX_STEPS:]
        return tuple(
            LearnedStep(pipeline=pipeline, step=step, taken=round(seen.taken, 3), runs=round(seen.runs, 3))
            for (pipeline, step), seen in newest
        )

    def recall(self, steps: Iterable[LearnedStep]) -> None:
        """What earlier ones knew."""
        for each in steps:
            self._seen[each.pipeline, each.step] = _Seen(each.taken, each.runs)

    def learn(self, pipeline: str, step: str, *, taken: bool) -> None:
        """A run has taken a step, or has not."""
        self._seen[pipeline, step].learn(taken=taken, memory=self._memory.get(pipeline, MEMORY_RUNS))

    def share(self, pipeline: str, step: Step) -> float:
        """How likely a run of the pipeline takes the step."""
        seen = self._seen.get((pipeline, step.id), _Seen())
        return (seen.taken + PRIOR_WEIGHT * assumed(step)) / (seen.runs + PRIOR_WEIGHT)
