"""A class with workers of its own and hosted ones, in memory: a flood spills over to these, and comes back."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.testing import InProcessPlane, in_process
from schemas.base import RunStatus
from schemas.fleet import WorkerStatus
from schemas.responses import InferenceResponse
from services.orchestrator.handlers import Dispatch
from tests.pipeline.test_worker_wiring import until

SLOTS, SERVICE_S, BUDGET_S = 2, 0.2, 4.0
FLOOD = 100
"""Ten seconds of work for the local backend: two and a half times as long as a step has."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[WorkerStatus]:
    """What dispatch has heard of workers."""
    found: list[WorkerStatus] = []
    learn = Dispatch.on_worker_statuses

    def hear(self: Dispatch, workers: Sequence[tuple[int, WorkerStatus]], *_: object) -> None:
        learn(self, workers)
        found.extend(worker for _, worker in workers)

    monkeypatch.setattr(Dispatch, "on_worker_statuses", hear)
    return found


def configuration(folder: Path) -> Path:
    def backend(name: str, slots: int, **price: float) -> dict[str, Any]:
        engine = {"kind": "simulated", "latency_ms": SERVICE_S * 1_000}
        return {"name": name, "engine": engine, "slots": slots, "price": price}

    own, hosted = backend("local", SLOTS, replica_hour_usd=1.0), backend("burst", 200, call_usd=0.01)
    pipeline = {
        "name": "ask", "deadline": "30s", "input": {"type": "object"}, "output": {"found": "${steps.look}"},
        "steps": [{"id": "look", "model_class": "tool", "timeout": f"{BUDGET_S:.0f}s", "on_failure": "fail"}],
    }  # fmt: skip
    (folder / "pipelines").mkdir()
    (folder / "models.yaml").write_text(yaml.safe_dump({"model_classes": {"tool": {"backends": [own, hosted]}}}))
    (folder / "pipelines" / "ask.yaml").write_text(yaml.safe_dump(pipeline))
    return folder


async def flood(plane: InProcessPlane, runs: int) -> list[str | None]:
    """The backends of so many runs, all at once, each of which succeeds."""
    responses: list[InferenceResponse] = await asyncio.gather(*(plane.run("ask", {}) for _ in range(runs)))
    assert {response.status for response in responses} == {RunStatus.SUCCEEDED}
    return [response.steps["look"].backend for response in responses]


async def test_a_flood_spills_over_to_the_hosted_backend_and_comes_back(
    tmp_path: Path, told: list[WorkerStatus]
) -> None:
    async with in_process(configuration(tmp_path)) as plane:
        assert await flood(plane, SLOTS) == ["local"] * SLOTS
        await until(lambda: any(worker.backend == "local" and worker.service_ms for worker in told))
        backends = Counter(await flood(plane, FLOOD))
        assert min(backends["local"], backends["burst"]) >= FLOOD / 10
        assert await flood(plane, SLOTS) == ["local"] * SLOTS
