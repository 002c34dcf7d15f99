"""A model class that moves from llama.cpp in its workers to a server elsewhere, and on to vLLM, under load.

There its core is killed, while it has more calls than a worker's retry budget would let it try again.
"""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import psutil
import pytest

from headway.text import pieces_of, run_id
from schemas.base import Json, RunStatus
from schemas.config import DEFAULT_TENANT
from services.worker.domain.retry_budget import CAPACITY
from tests.contract.engines.kinds import IN_VLLMS_ENVIRONMENT
from tests.contract.engines.tiny_llama import write_tiny_llama
from tests.contract.engines.vllm_subject import vllm_config
from tests.e2e.moves import FEW, MANY, Chat, chatting, move, trickle
from tests.e2e.planes import RunningPlane
from tests.e2e.test_moves import LATER, MODEL, LlamaServer

pytestmark = [pytest.mark.kafka, pytest.mark.plane, pytest.mark.models, *IN_VLLMS_ENVIRONMENT]

VLLM_PATIENCE_S = 400.0
"""Beside the plane, on the same cores, it takes minutes to load."""
PROMPT_TOKENS = 1 + len("user: Count from one.\nassistant: ")
"""Of the tiny model: a byte each, and one that begins it."""
AT_WORK = int(CAPACITY) + 2
SLOTS = AT_WORK + 4
LONG = 600
"""Tokens of an answer that is not there when the last of so many has begun."""


@pytest.fixture(scope="module")
async def chat(plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chat]:
    async with chatting(plane, tmp_path_factory.mktemp("chat") / "config", VLLM_PATIENCE_S) as chat:
        yield chat


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    model = write_tiny_llama(tmp_path_factory.mktemp("tiny") / "model")
    found: dict[str, Json] = vllm_config(str(model)).model_dump(mode="json")
    return found


async def test_a_class_moves_from_llamacpp_to_openai_and_on_to_vllm_under_load_and_no_run_fails(
    chat: Chat, tiny: dict[str, Json]
) -> None:
    server = await asyncio.to_thread(LlamaServer)
    await chat.serve_by("own", {"kind": "llamacpp", "model": MODEL, "context": 4_096})
    answers = [await chat.ask(FEW)]
    answers += await move(chat, "hosted", server.engine)
    answers += (moved := await move(chat, "gpu", tiny, SLOTS))
    later = [await chat.ask(FEW) for _ in range(LATER)]
    answers += later
    responses = await chat.responses(answers)
    assert {(answer.status, answer.steps["say"].attempts) for answer in answers} == {(RunStatus.SUCCEEDED, 1)}
    assert set(responses) == {1}
    assert moved[0].usage.by_step["say"].output_tokens == MANY
    usages = [answer.usage.by_step["say"] for answer in later]
    assert {(usage.input_tokens, usage.output_tokens) for usage in usages} == {(PROMPT_TOKENS, FEW)}


async def test_the_death_of_vllms_core_ends_its_worker_and_no_run_fails(
    plane: RunningPlane, chat: Chat, tiny: dict[str, Json]
) -> None:
    await chat.serve_by("gpu", tiny, SLOTS)
    first = await chat.ask(FEW)
    worker, *its_own = chat.processes()
    (core,) = [process for process in its_own if "EngineCore" in " ".join(process.cmdline())]
    async with trickle(chat) as answers:
        at_work = await asyncio.gather(*(begun(plane, chat) for _ in range(AT_WORK)))
        core.kill()
        _, left = await asyncio.to_thread(psutil.wait_procs, [worker], chat.patience_s)
        assert not left, "the worker outlives its engine"
        interrupted = await asyncio.gather(*map(chat.answer, at_work))
    doers = chat.doers()
    responses = await chat.responses([*interrupted, *answers])
    assert {answer.status for answer in [*interrupted, *answers]} == {RunStatus.SUCCEEDED}
    assert set(responses) == {1}
    others = {worker for answer in interrupted for worker in doers[answer.run_id]}
    assert len(others) == 1
    assert others.isdisjoint(doers[first.run_id]), "nobody else has taken over"


async def begun(plane: RunningPlane, chat: Chat) -> str:
    """The id of a request whose first words have been heard."""
    request_id = f"long-{uuid4()}"
    async with pieces_of(plane.endpoints.redis, run_id(DEFAULT_TENANT, request_id)) as pieces:
        await chat.submit(LONG, request_id=request_id)
        async with asyncio.timeout(chat.patience_s):
            await anext(pieces)
    return request_id
