"""Any graph a pipeline may be: gates, values, chains, time-outs and retries, in any shape without cycles."""

from hypothesis import strategies as st

from schemas.graphs import Graph, OnFailure, Step, StepKind, Target

MAX_STEPS = 5
LINKS = (Target(model_class="llm"), Target(model_class="small", backend="burst"), Target(value="sorry"))


@st.composite
def steps(draw: st.DrawFn, number: int) -> Step:
    """The step `s<number>`, which needs any of those before it."""
    kind = draw(st.sampled_from([StepKind.MODEL] * 4 + [StepKind.VALUE, StepKind.GATE]))
    needs = tuple(f"s{need}" for need in range(number) if draw(st.booleans()))
    own = {"id": f"s{number}", "kind": kind, "needs": needs, "reads": needs[: draw(st.integers(0, len(needs)))]}
    if kind is StepKind.GATE:
        return Step(**own, chain=(Target(),))
    on_failure = draw(st.sampled_from([OnFailure.CONTINUE, OnFailure.CONTINUE, OnFailure.FAIL]))
    if kind is StepKind.VALUE:
        return Step(**own, chain=(Target(),), on_failure=on_failure)
    return Step(
        **own,
        chain=LINKS[: draw(st.integers(1, len(LINKS)))],
        on_failure=on_failure,
        timeout_ms=draw(st.sampled_from([None, None, 1, 700, 700, 2_000, 40_000])),
        max_attempts=draw(st.integers(1, 3)),
    )


@st.composite
def graphs(draw: st.DrawFn, max_steps: int = MAX_STEPS) -> Graph:
    """A graph of at least one step."""
    found = tuple(draw(steps(number)) for number in range(draw(st.integers(1, max_steps))))
    return Graph(pipeline="any", version=1, steps=found, output={}, output_reads=tuple(step.id for step in found))
