"""What only an engine has to promise whose models run in processes of a server's own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from headway.testing import InProcessPlane
from schemas import models
from schemas.base import RunStatus
from schemas.config import Bundle
from schemas.responses import InferenceResponse
from services.worker.domain.engine import EngineFailed, EngineUnavailable, Outcome, Result
from services.worker.engines.triton import TritonEngine
from tests.contract.engines.kinds import Running
from tests.contract.engines.server_process import ServerProcess
from tests.contract.engines.subjects import Input, call, until
from tests.contract.engines.test_every_engine import STOPS_WITHIN_S
from tests.contract.engines.triton_server import TritonServer
from tests.contract.engines.triton_subject import triton_config

pytestmark = pytest.mark.triton

PROCESSES = 3
HEALED_S = 30.0


@pytest.fixture
async def server(running: Running) -> TritonServer:
    server = (await running("triton")).server
    assert isinstance(server, ServerProcess)
    assert isinstance(server.startable, TritonServer)
    return server.startable


@pytest.fixture
async def engine(server: TritonServer) -> AsyncIterator[TritonEngine]:
    engine = TritonEngine(triton_config(server, "shout"), {})
    await engine.start()
    yield engine
    await engine.stop()


async def ask(engine: TritonEngine, value: Input) -> Outcome:
    (outcome,) = await engine.infer([call(value)])
    return outcome


def processes(server: TritonServer, model: str = "shout") -> list[psutil.Process]:
    """Of a model, the oldest first. Each is started with the path of its model's file."""
    children = psutil.Process(server.pid).children(recursive=True)
    living = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    its = [child for child in living if f"/models/{model}/" in " ".join(child.cmdline())]
    return sorted(its, key=psutil.Process.create_time)


def kill_one(server: TritonServer) -> set[psutil.Process]:
    """One that serves: Triton keeps others, of a model that was unloaded with a dead one. Returns all there were."""
    before = processes(server)
    before[-1].kill()
    return set(before)


async def test_of_a_model_that_lost_one_process_of_several_the_engine_is_ill_until_it_is_loaded_anew(
    server: TritonServer, engine: TritonEngine
) -> None:
    """Triton calls it ready, and the other processes still answer: also a health check might meet one of those."""
    kill_one(server)
    outcomes = [await ask(engine, {"TEXT": ["a"]}) for _ in range(PROCESSES)]
    (failed,) = [outcome for outcome in outcomes if not isinstance(outcome, Result)]
    assert isinstance(failed, EngineUnavailable), failed
    for _ in range(PROCESSES):
        with pytest.raises(EngineUnavailable, match="has died"):
            await engine.health()

    await engine.start()

    await engine.health()
    for _ in range(2 * PROCESSES):
        assert isinstance(await ask(engine, {"TEXT": ["a"]}), Result)


async def test_a_killed_process_costs_no_run(server: TritonServer, tmp_path: Path) -> None:
    bundle = Bundle.model_validate({
        "model_classes": {
            "shout": {"slots": 2, "backends": [{"name": "triton", "engine": triton_config(server, "shout")}]},
        },
        "pipelines": [
            {
                "name": "shout",
                "input": {"type": "object", "properties": {"text": {"type": "string"}}},
                "steps": [{"id": "shout", "model_class": "shout", "input": {"TEXT": ["${input.text}"]}}],
                "output": "${steps.shout.SHOUTED[0]}",
            }
        ],
    })  # fmt: skip
    plane = InProcessPlane(bundle, tmp_path, tmp_path)
    await plane.start()
    responses: list[InferenceResponse] = []
    try:
        before = kill_one(server)
        async with asyncio.timeout(HEALED_S):
            while len({*processes(server)} - before) < PROCESSES:
                numbers = range(len(responses), len(responses) + PROCESSES)
                responses += await asyncio.gather(
                    *(plane.run("shout", {"text": f"run {number}"}, timeout_s=HEALED_S) for number in numbers)
                )
    finally:
        await plane.stop()
    assert responses
    for number, response in enumerate(responses):
        assert (response.status, response.error) == (RunStatus.SUCCEEDED, None)
        assert response.output == f"RUN {number}"


async def test_a_model_that_raises_fails_its_call_alone_and_its_words_stay_where_they_are(
    engine: TritonEngine,
) -> None:
    failed, fine = await engine.infer([call({"TEXT": ["raise"]}), call({"TEXT": ["a"]})])
    assert isinstance(failed, EngineFailed)
    assert failed.retryable
    assert "private" not in str(failed)
    assert isinstance(fine, Result)
    await engine.health()


async def test_the_answers_of_a_decoupled_model_are_collected(server: TritonServer) -> None:
    engine = TritonEngine(triton_config(server, "count"), {})
    await engine.start()
    outcome = await ask(engine, {"N": [3]})
    await engine.stop()
    assert outcome == Result({"responses": [{"I": [0.0]}, {"I": [0.5]}, {"I": [1.0]}]})


async def test_a_decoupled_model_is_told_when_its_call_is_cancelled_and_sends_no_more(server: TritonServer) -> None:
    engine = TritonEngine(triton_config(server, "count"), {})
    await engine.start()
    running = asyncio.create_task(engine.infer([call({"N": [100_000]}, deadline_s=120)]))
    await until(lambda: sent_more_than(server, 10))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await until(lambda: sends_no_more(server), timeout_s=STOPS_WITHIN_S)
    await engine.stop()


async def sent_more_than(server: TritonServer, answers: int) -> bool:
    return await server.count("answers_sent") > answers


async def sends_no_more(server: TritonServer) -> bool:
    """As Triton counts, in the time of many answers."""
    before = await server.count("answers_sent")
    await asyncio.sleep(0.2)
    return await server.count("answers_sent") == before


async def test_only_the_outputs_that_are_wanted_are_sent(server: TritonServer) -> None:
    config = models.TritonEngine(
        kind="triton", address=server.address, model="shout", outputs=("LENGTHS",), health_input={"TEXT": ["x"]}
    )
    engine = TritonEngine(config, {})
    await engine.start()
    outcome = await ask(engine, {"TEXT": ["abc"]})
    await engine.stop()
    assert outcome == Result({"LENGTHS": [3]})


async def test_without_control_of_the_model_sleep_leaves_it_to_others(
    server: TritonServer, engine: TritonEngine
) -> None:
    guest = TritonEngine(models.TritonEngine(kind="triton", address=server.address, model="shout"), {})
    await guest.start()
    await guest.sleep()
    assert isinstance(await ask(engine, {"TEXT": ["a"]}), Result)
    assert isinstance(await ask(guest, {"TEXT": ["a"]}), Result)
    await guest.stop()


async def test_a_server_of_which_a_model_sleeps_is_ready_to_be_asked_for_it_again(server: TritonServer) -> None:
    """Strict about readiness, as Triton is unless told otherwise, it would get no more requests from Kubernetes."""
    engine = TritonEngine(triton_config(server, "count"), {})
    await engine.start()
    await engine.sleep()
    assert await server.is_ready()
