"""How long a worker that is told to stop needs: its tasks are ended, not torn off."""

import math
from collections.abc import Iterable, Iterator

from schemas.config import Bundle
from schemas.pipelines import PipelineSpec, StepSpec

DEADLINE_MS: int = PipelineSpec.model_fields["deadline"].default
"""Of a pipeline that names none; also of a class that no pipeline calls yet."""
LEAVE_S = 1
"""Of the time to drain, the last is for commits."""
MAX_DRAIN_S = 600
"""What settings allow."""
MARGIN_S = 5
"""From there until the pod is killed: teardown, and the start of the signal."""


def drain_s(bundle: Bundle, model_class: str) -> int:
    """Seconds from the signal: those of the longest task that a pipeline allows, and a moment to leave."""
    longest_ms = max(_tasks_ms(bundle.pipelines, model_class), default=DEADLINE_MS)
    return min(math.ceil(longest_ms / 1_000) + LEAVE_S, MAX_DRAIN_S)


def _tasks_ms(pipelines: Iterable[PipelineSpec], model_class: str) -> Iterator[int]:
    for pipeline in pipelines:
        for step in pipeline.steps:
            if _may_call(step, model_class):
                yield min(step.timeout or pipeline.deadline, pipeline.deadline)


def _may_call(step: StepSpec, model_class: str) -> bool:
    return model_class in (step.model_class, *(fallback.model_class for fallback in step.fallback))
