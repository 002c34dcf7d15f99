"""Graphs of runs, as short as tests want them."""

from schemas.graphs import Graph, Step, StepKind, Target


def call(name: str, model_class: str, *, when: str | None = None, backend: str | None = None) -> Step:
    """A step that calls a class, or one of its backends."""
    return Step(id=name, kind=StepKind.MODEL, when=when, chain=(Target(model_class=model_class, backend=backend),))


def gate(name: str) -> Step:
    return Step(id=name, kind=StepKind.GATE, input="${true}")


def graph(*steps: Step, pipeline: str = "ask") -> Graph:
    return Graph(pipeline=pipeline, version=1, steps=steps, output=None)
