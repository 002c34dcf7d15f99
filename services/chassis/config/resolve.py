"""From a pipeline as written to the graph that a run carries."""

import hashlib

from pydantic_core import to_json

from schemas.graphs import Graph, Step, StepKind, Target
from schemas.pipelines import FallbackSpec, PipelineSpec, StepSpec
from services.chassis.expressions import compile_condition, compile_template


def resolve(pipeline: PipelineSpec) -> Graph:
    """The graph of a pipeline that has been checked. Raises ExpressionError for one that has not."""
    ids = [step.id for step in pipeline.steps]
    return Graph(
        pipeline=pipeline.name,
        version=pipeline.version,
        steps=tuple(_step(step, ids) for step in pipeline.steps),
        output=pipeline.output,
        output_reads=_in_order(compile_template(pipeline.output, ids).references(), ids),
    )


def digest(graph: Graph) -> str:
    """sha256 of the graph's JSON: runs with the same digest share one graph."""
    return hashlib.sha256(to_json(graph)).hexdigest()


def _step(spec: StepSpec, ids: list[str]) -> Step:
    chain = _chain(spec)
    kind, written = _kind(spec)
    templates = [compile_template(written, ids)]
    templates += [compile_template(target.value, ids) for target in chain[1:] if target.model_class is None]
    reads = frozenset().union(*(template.references() for template in templates))
    reads_input = any(template.reads_input for template in templates)
    if spec.when is not None:
        condition = compile_condition(spec.when, ids)
        reads |= condition.references()
        reads_input |= condition.reads_input
    return Step(
        id=spec.id,
        kind=kind,
        input=written,
        when=spec.when,
        needs=_in_order(reads | set(spec.after), ids),
        reads=_in_order(reads, ids),
        reads_input=reads_input,
        chain=chain,
        on_failure=spec.on_failure,
        timeout_ms=spec.timeout,
        max_attempts=spec.max_attempts,
    )


def _kind(spec: StepSpec) -> tuple[StepKind, object]:
    """What the step is, and the template that is evaluated for it."""
    if spec.model_class is not None:
        return StepKind.MODEL, spec.input
    if spec.gate is not None:
        return StepKind.GATE, spec.gate
    return StepKind.VALUE, spec.value


def _chain(spec: StepSpec) -> tuple[Target, ...]:
    own = Target(model_class=spec.model_class, backend=spec.backend)
    return (own, *(_fallback(fallback, spec) for fallback in spec.fallback))


def _fallback(fallback: FallbackSpec, spec: StepSpec) -> Target:
    if "value" in fallback.model_fields_set:
        return Target(value=fallback.value)
    return Target(model_class=fallback.model_class or spec.model_class, backend=fallback.backend)


def _in_order(found: frozenset[str] | set[str], ids: list[str]) -> tuple[str, ...]:
    """As written: the graph's bytes, and so its digest, must not depend on a set's order."""
    return tuple(step_id for step_id in ids if step_id in found)
