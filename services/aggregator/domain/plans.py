"""A graph made ready for the fold: what waits for what. Runs of one graph share one plan."""

from dataclasses import dataclass

from schemas.graphs import Graph, Step


@dataclass(frozen=True, slots=True)
class Plan:
    """A resolved graph, indexed."""

    graph: Graph
    steps: dict[str, Step]
    dependents: dict[str, tuple[str, ...]]
    """Steps that need the key, in written order."""
    dispatchable: dict[str, Step]
    """Steps as `step-ready` carries them: without the chain, which only the fold walks."""

    @classmethod
    def of(cls, graph: Graph) -> "Plan":
        """Indexes a graph. Raises ValueError for one that no run could go through."""
        steps = {step.id: step for step in graph.steps}
        _require_sound(graph, steps)
        waiting: dict[str, list[str]] = {step_id: [] for step_id in steps}
        for step in graph.steps:
            for need in step.needs:
                waiting[need].append(step.id)
        return cls(
            graph=graph,
            steps=steps,
            dependents={need: tuple(ids) for need, ids in waiting.items()},
            dispatchable={step.id: step.model_copy(update={"chain": ()}) for step in graph.steps},
        )

    @property
    def roots(self) -> tuple[str, ...]:
        """Steps that need nothing."""
        return tuple(step.id for step in self.graph.steps if not step.needs)


def _require_sound(graph: Graph, steps: dict[str, Step]) -> None:
    """Configurations are checked before they are published: this is for what else may stand in the log."""
    if not steps or len(steps) != len(graph.steps):
        raise ValueError("the graph has no steps, or two of one name")
    for step in graph.steps:
        if not step.chain or not steps.keys() >= {*step.needs, *step.reads}:
            raise ValueError(f"step {step.id!r} has nowhere to run, or needs a step that is not there")
