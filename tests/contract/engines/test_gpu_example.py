"""The example of a fast and a slow model on one GPU, at a real Triton."""

from pathlib import Path

import pytest

from headway.testing import InProcessPlane
from schemas import models
from schemas.base import Json
from schemas.config import Bundle
from services.chassis.config.folder import load_folder
from tests.contract.engines.kinds import Running
from tests.contract.engines.server_process import ServerProcess
from tests.contract.engines.triton_server import TritonServer

pytestmark = pytest.mark.triton

EXAMPLE = Path(__file__).parents[3] / "infra" / "gpu"
SAID = {"text": "It scatters.", "finish_reason": "stop"}


@pytest.fixture
async def server(running: Running) -> TritonServer:
    server = (await running("triton")).server
    assert isinstance(server, ServerProcess)
    assert isinstance(server.startable, TritonServer)
    server.startable.add(EXAMPLE / "model-repository" / "embedding")
    return server.startable


def example(server: TritonServer) -> Bundle:
    """With its Triton where the test's is, and without vLLM."""
    bundle, problems = load_folder(EXAMPLE / "config")
    assert problems == []
    assert bundle is not None
    engines: dict[str, models.EngineConfig] = {
        "llm": models.SimulatedEngine(kind="simulated", output=SAID),
        "embedding": bundle.model_classes["embedding"]
        .backends[0]
        .engine.model_copy(update={"address": server.address}),
    }
    return bundle.model_copy(
        update={"model_classes": {name: with_engine(bundle, name, engine) for name, engine in engines.items()}}
    )


def with_engine(bundle: Bundle, name: str, engine: models.EngineConfig) -> models.ModelClass:
    (backend,) = bundle.model_classes[name].backends
    return bundle.model_classes[name].model_copy(
        update={"backends": (backend.model_copy(update={"engine": engine}),)}
    )


def likeness(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_its_pipelines_are_answered_by_both_models(server: TritonServer, tmp_path: Path) -> None:
    plane = InProcessPlane(example(server), tmp_path, tmp_path)
    await plane.start()
    try:
        answered = (await plane.run("answer", {"question": "Why is the sky blue?"})).output
        texts: Json = ["why is the sky blue", "An embedding is a vector."]
        near, far = (await plane.run("embed", {"texts": texts})).output["vectors"]
    finally:
        await plane.stop()
    assert answered["text"] == SAID["text"]
    assert likeness(near, near) == pytest.approx(1.0)
    assert likeness(answered["vector"], near) > 0.8
    assert likeness(answered["vector"], far) < 0.5
