"""What a ready step becomes, and which queue it goes to."""

from typing import Any

import pytest

from schemas.base import Priority
from schemas.graphs import Step, StepKind, Target
from schemas.joins import StepReady
from schemas.models import ModelsFile, Queue, queues
from services.orchestrator.domain import steps
from services.orchestrator.domain.components import Components

MODELS: dict[str, Any] = {
    "embedding": {"backends": [{"name": "local", "engine": {"kind": "simulated"}}]},
    "llm": {
        "backends": [
            {"name": "local", "engine": {"kind": "simulated"}},
            {"name": "burst", "engine": {"kind": "simulated"}, "price": {"call_usd": 0.5}},
        ]
    },
}
QUEUES: dict[tuple[str, str], Queue] = {
    (queue.model_class, queue.backend): queue
    for queue in queues(ModelsFile.model_validate({"model_classes": MODELS}).model_classes)
}


def ready(target: Target) -> StepReady:
    return StepReady(
        run_id="0f9f3a6e-1c7f-5a0e-9d57-0c5f0e6b8a11",
        tenant="acme",
        task_id="0f9f3a6e-1c7f-5a0e-9d57-0c5f0e6b8a11/phrase#2",
        pipeline="ask",
        step=Step(id="phrase", kind=StepKind.MODEL),
        target=target,
        fallback=1,
        attempt=2,
        priority="batch",
        deadline_at=2_000,
        step_deadline_at=1_500,
        ready_at=1_000,
    )


@pytest.mark.parametrize(
    ("target", "topic"),
    [
        (Target(model_class="llm"), "inference-tasks-llm"),
        (Target(model_class="llm", backend="local"), "inference-tasks-llm"),
        (Target(model_class="llm", backend="burst"), "inference-tasks-llm.burst"),
        (Target(model_class="llm", backend="gone"), None),
        (Target(model_class="gone"), None),
    ],
)
def test_a_step_goes_to_its_backend_or_to_the_first_one_of_its_class(target: Target, topic: str | None) -> None:
    found = steps.route(steps.candidates(ready(target), QUEUES), Priority.BATCH, Components())
    assert (found[0].topic if found else None) == topic


def test_a_task_names_its_attempt_and_carries_the_price_of_its_backend() -> None:
    task = steps.task(ready(Target(model_class="llm", backend="burst")), QUEUES["llm", "burst"], {"a": 1}, None)
    assert (task.step, task.attempt, task.fallback, task.lane) == ("phrase", 2, 1, "batch")
    assert (task.backend, task.price.call_usd, task.step_deadline_at) == ("burst", 0.5, 1_500)


def test_a_skip_is_of_the_attempt_that_was_ready() -> None:
    skipped = steps.skipped(ready(Target(model_class="llm")))
    assert (skipped.step, skipped.attempt, skipped.fallback) == ("phrase", 2, 1)
