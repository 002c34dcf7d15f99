"""A pipeline as a run carries it."""

import subprocess
import sys

import pytest

from schemas.graphs import OnFailure, StepKind, Target
from schemas.pipelines import PipelineSpec
from services.chassis.config.resolve import digest, resolve
from services.chassis.expressions import ExpressionError

ASK = {
    "name": "ask",
    "version": 3,
    "steps": [
        {"id": "guard", "model_class": "classifier", "input": {"text": "${input.question}"}},
        {"id": "safe", "gate": "${steps.guard.label != 'injection'}"},
        {"id": "embed", "model_class": "embedding", "input": {"texts": ["fixed"]}, "timeout": "20s"},
        {
            "id": "phrase", "model_class": "llm", "backend": "local", "on_failure": "continue", "max_attempts": 2,
            "input": {"prompt": "${steps.embed.vectors} ${input.question}"},
            "when": "${steps.guard.score > 0.5}", "after": ["safe", "embed"],
            "fallback": [
                {"backend": "burst"}, {"model_class": "small"}, {"model_class": "big", "backend": "eu"},
                {"value": {"text": "${steps.safe}"}}, {"value": None},
            ],
        },
        {"id": "total", "value": {"n": "${size(steps.phrase)}"}},
    ],
    "output": {"answer": "${steps.total.n}", "safe": "${steps.safe}"},
}  # fmt: skip


def test_a_graph_has_everything_a_run_needs() -> None:
    graph = resolve(PipelineSpec.model_validate(ASK))
    guard, safe, embed, phrase, total = graph.steps
    assert (graph.pipeline, graph.version, graph.output, graph.output_reads) == (
        "ask", 3, ASK["output"], ("safe", "total"),
    )  # fmt: skip

    assert (guard.kind, guard.input) == (StepKind.MODEL, {"text": "${input.question}"})
    assert (guard.needs, guard.reads, guard.reads_input) == ((), (), True)
    assert guard.chain == (Target(model_class="classifier"),)

    assert (safe.kind, safe.input) == (StepKind.GATE, "${steps.guard.label != 'injection'}")
    assert (safe.needs, safe.reads, safe.reads_input, safe.chain) == (("guard",), ("guard",), False, (Target(),))

    assert (embed.needs, embed.reads_input, embed.timeout_ms, embed.max_attempts) == ((), False, 20_000, 3)

    assert phrase.needs == ("guard", "safe", "embed")
    assert phrase.reads == ("guard", "safe", "embed")
    assert (phrase.when, phrase.reads_input) == ("${steps.guard.score > 0.5}", True)
    assert (phrase.on_failure, phrase.max_attempts, phrase.timeout_ms) == (OnFailure.CONTINUE, 2, None)
    assert phrase.chain == (
        Target(model_class="llm", backend="local"),
        Target(model_class="llm", backend="burst"),
        Target(model_class="small"),
        Target(model_class="big", backend="eu"),
        Target(value={"text": "${steps.safe}"}),
        Target(),
    )

    assert (total.kind, total.input, total.reads) == (StepKind.VALUE, {"n": "${size(steps.phrase)}"}, ("phrase",))


def test_a_step_that_is_only_waited_for_is_needed_but_not_read() -> None:
    steps = [{"id": "a", "value": 1}, {"id": "b", "value": 2, "after": ["a"]}]
    graph = resolve(PipelineSpec.model_validate({"name": "p", "steps": steps, "output": 1}))
    assert (graph.steps[1].needs, graph.steps[1].reads, graph.steps[1].reads_input) == (("a",), (), False)


def test_a_pipeline_that_was_not_checked_is_refused() -> None:
    steps = [{"id": "a", "value": "${steps.nobody}"}]
    with pytest.raises(ExpressionError, match="unknown step `nobody`"):
        resolve(PipelineSpec.model_validate({"name": "p", "steps": steps, "output": 1}))


def test_equal_graphs_have_equal_digests_in_every_process() -> None:
    graph = resolve(PipelineSpec.model_validate(ASK))
    reordered = {**ASK, "output": {"safe": "${steps.safe}", "answer": "${steps.total.n}"}}
    assert digest(resolve(PipelineSpec.model_validate(reordered))) == digest(graph)
    assert digest(resolve(PipelineSpec.model_validate({**ASK, "version": 4}))) != digest(graph)
    code = (
        "import sys; from services.chassis.config.resolve import digest, resolve;"
        "from schemas.pipelines import PipelineSpec;"
        "print(digest(resolve(PipelineSpec.model_validate_json(sys.stdin.read()))))"
    )
    text = PipelineSpec.model_validate(ASK).model_dump_json()
    printed = subprocess.check_output([sys.executable, "-c", code], input=text, text=True, timeout=60)
    assert printed.strip() == digest(graph)
