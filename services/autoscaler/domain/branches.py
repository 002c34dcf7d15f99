"""How often a pipeline takes each of its steps, learned from runs; old runs count less and less."""

from dataclasses import dataclass

from schemas.graphs import Graph, Step, StepKind

KEEP = 0.998
"""Of a run's weight when another one is over: half of what is known comes from the last 350 runs. Of fewer, chance
would make a quarter a third, and another half as many workers."""
PRIOR_WEIGHT = 2.0
"""In runs. What is assumed before any is seen counts as much as two of them (the rule of succession)."""


def calls(graph: Graph) -> list[Step]:
    """The steps that call a model class; the orchestrator does the others itself."""
    return [step for step in graph.steps if step.kind is StepKind.MODEL and step.chain and step.chain[0].model_class]


def assumed(step: Step) -> float:
    """The share of runs that take a step, before one is seen: a condition may be false, nothing else stops it."""
    return 0.5 if step.when is not None else 1.0


@dataclass(slots=True)
class _Seen:
    taken: float = 0.0
    runs: float = 0.0


class Branches:
    """Of all pipelines, by step."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}

    def learn(self, pipeline: str, step: str, *, taken: bool) -> None:
        """A run has taken a step, or has not."""
        seen = self._seen.setdefault((pipeline, step), _Seen())
        seen.taken = seen.taken * KEEP + taken
        seen.runs = seen.runs * KEEP + 1.0

    def share(self, pipeline: str, step: Step) -> float:
        """How likely a run of the pipeline takes the step."""
        seen = self._seen.get((pipeline, step.id), _Seen())
        return (seen.taken + PRIOR_WEIGHT * assumed(step)) / (seen.runs + PRIOR_WEIGHT)
