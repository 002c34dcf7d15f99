"""What MLServer does in ways of its own, and the engine understands: one protocol, spoken by two servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from schemas import models
from services.worker.domain.engine import EngineError, EngineFailed, EngineUnavailable, Outcome, Result
from services.worker.engines.triton import TritonEngine
from tests.contract.engines.mlserver_server import MLServer
from tests.contract.engines.mlserver_subject import mlserver_config
from tests.contract.engines.subjects import Input, call, until

pytestmark = pytest.mark.mlserver

GOOD: Input = {"TEXT": ["a"], "SECONDS": [0]}
SLOW = "slow"
MUTE = "mute"
HEALED_S = 30.0


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MLServer]:
    """As it is by default: a process beside it runs the models."""
    server = MLServer(tmp_path_factory.mktemp("mlserver"), workers=1)
    server.add("shout")
    server.add(SLOW, parameters={"extra": {"desk": str(server.desk), "load_s": 0.5}})
    server.add(MUTE, inputs=[], outputs=[])
    await server.start()
    yield server
    await server.kill()


@asynccontextmanager
async def started(engine: TritonEngine) -> AsyncIterator[TritonEngine]:
    await engine.start()
    yield engine
    await engine.stop()


async def ask(engine: TritonEngine, value: Input = GOOD) -> Outcome:
    (outcome,) = await engine.infer([call(value)])
    return outcome


async def until_answered(engine: TritonEngine) -> list[EngineError]:
    """What it said before."""
    refusals = []
    async with asyncio.timeout(HEALED_S):
        while isinstance(outcome := await ask(engine), EngineError):
            refusals.append(outcome)
    return refusals


async def test_a_model_that_raises_in_another_process_fails_its_call_alone_and_its_words_stay_there(
    server: MLServer,
) -> None:
    async with started(TritonEngine(mlserver_config(server, "shout"), {})) as engine:
        failed, fine = await engine.infer([call({"TEXT": ["raise"], "SECONDS": [0]}), call(GOOD)])
    assert isinstance(failed, EngineFailed)
    assert failed.retryable
    assert "private" not in str(failed)
    assert isinstance(fine, Result)


async def test_a_process_that_is_killed_is_replaced_by_the_server_and_its_calls_may_be_tried_again(
    server: MLServer,
) -> None:
    async with started(TritonEngine(mlserver_config(server, "shout"), {})) as engine:
        interrupted = asyncio.create_task(ask(engine, {"TEXT": ["a"], "SECONDS": [600]}))
        await until(server.is_busy)
        worker = psutil.Process(server.pid).children()[-1]
        worker.kill()
        refusals = [await interrupted, *await until_answered(engine)]
        await engine.health()
    assert all(isinstance(refusal, EngineError) and refusal.retryable for refusal in refusals), refusals


async def test_a_model_that_is_not_ready_yet_is_unavailable_and_not_the_fault_of_who_calls(server: MLServer) -> None:
    """The server says INVALID_ARGUMENT of it, as of a wrong input."""
    config = models.TritonEngine(kind="triton", address=server.address, model=SLOW)
    async with (
        started(TritonEngine(mlserver_config(server, SLOW), {})) as owner,
        started(TritonEngine(config, {})) as guest,
    ):
        await owner.sleep()
        waking = asyncio.create_task(owner.wake())
        refusals = await until_answered(guest)
        await waking
    assert {type(refusal) for refusal in refusals} == {EngineUnavailable}
    assert any("not ready" in str(refusal) for refusal in refusals)


async def test_a_model_that_does_not_tell_its_tensors_is_no_use_and_that_is_said_at_the_start(
    server: MLServer,
) -> None:
    """What the server does by default: then nobody knows what to send."""
    engine = TritonEngine(mlserver_config(server, MUTE), {})
    with pytest.raises(EngineUnavailable, match="does not tell its tensors"):
        await engine.start()
    await engine.stop()
