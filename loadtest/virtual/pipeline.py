"""Pipelines of a simulation: the graph that a run carries, and how often its branches are taken."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from schemas.graphs import Graph, Step, StepKind, Target


class Pipeline(NamedTuple):
    """What runs go through."""

    graph: Graph
    shares: Mapping[str, float]
    """By step, how many of the runs take it."""
    followers: Mapping[str, tuple[str, ...]]
    """By step, those that need it."""


class Call(NamedTuple):
    """A step that calls a class, once all that it needs is over."""

    name: str
    model_class: str
    needs: tuple[str, ...] = ()
    share: float = 1.0


def pipeline(name: str, calls: Sequence[Call]) -> Pipeline:
    """Of steps, in any order."""
    graph = Graph(pipeline=name, version=1, steps=tuple(map(_step, calls)), output=None)
    followers = {call.name: tuple(each.name for each in calls if call.name in each.needs) for call in calls}
    return Pipeline(graph, {call.name: call.share for call in calls}, followers)


def _step(call: Call) -> Step:
    return Step(
        id=call.name,
        kind=StepKind.MODEL,
        needs=call.needs,
        when="${input.branch}" if call.share < 1 else None,
        chain=(Target(model_class=call.model_class),),
    )
