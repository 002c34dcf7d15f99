"""A pipeline as a run carries it: every reference found, every default filled in."""

import hashlib
import json
from collections.abc import Iterator

from schemas.base import Json
from schemas.graphs import Graph, Step, StepKind, Target
from schemas.pipelines import FallbackSpec, PipelineSpec, StepSpec
from services.chassis.expressions import Condition, Template, compile_condition, compile_template


def resolve(pipeline: PipelineSpec) -> Graph:
    """Of a pipeline that was checked. Raises ExpressionError for one that was not."""
    ids = [step.id for step in pipeline.steps]
    output = compile_template(pipeline.output, ids)
    return Graph(
        pipeline=pipeline.name,
        version=pipeline.version,
        steps=tuple(_step(step, ids) for step in pipeline.steps),
        output=pipeline.output,
        output_reads=tuple(step for step in ids if step in output.references()),
    )


def digest(graph: Graph) -> str:
    """SHA-256 of the graph as canonical JSON: equal graphs, equal digests, in every process."""
    text = json.dumps(graph.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _step(spec: StepSpec, ids: list[str]) -> Step:
    compiled = list(_compiled(spec, ids))
    reads = {step for expression in compiled for step in expression.references()}
    needs = reads.union(spec.after)
    kind, written = _kind(spec)
    return Step(
        id=spec.id,
        kind=kind,
        input=written,
        when=spec.when,
        needs=tuple(step for step in ids if step in needs),
        reads=tuple(step for step in ids if step in reads),
        reads_input=any(expression.reads_input for expression in compiled),
        chain=(Target(model_class=spec.model_class, backend=spec.backend), *(_link(spec, f) for f in spec.fallback)),
        on_failure=spec.on_failure,
        timeout_ms=spec.timeout,
        max_attempts=spec.max_attempts,
        stream=spec.stream or None,
    )


def _kind(spec: StepSpec) -> tuple[StepKind, Json]:
    """What a step is, and the template or expression it is made of."""
    if spec.gate is not None:
        return StepKind.GATE, spec.gate
    if spec.model_class is not None:
        return StepKind.MODEL, spec.input
    return StepKind.VALUE, spec.value


def _compiled(spec: StepSpec, ids: list[str]) -> Iterator[Template | Condition]:
    """Every expression of a step, those of its fallbacks included: they may be needed at any time."""
    _, written = _kind(spec)
    yield compile_template(written, ids)
    if spec.when is not None:
        yield compile_condition(spec.when, ids)
    for link in spec.fallback:
        yield compile_template(link.value, ids)


def _link(spec: StepSpec, link: FallbackSpec) -> Target:
    if "value" in link.model_fields_set:
        return Target(value=link.value)
    return Target(model_class=link.model_class or spec.model_class, backend=link.backend)
