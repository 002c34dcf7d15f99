"""A model class that moves from llama.cpp in its workers to a server elsewhere, and on to vLLM, under load."""

import asyncio
from pathlib import Path

import pytest

from schemas.base import RunStatus
from tests.contract.engines.kinds import IN_VLLMS_ENVIRONMENT
from tests.contract.engines.tiny_llama import write_tiny_llama
from tests.contract.engines.vllm_subject import vllm_config
from tests.e2e.moves import FEW, MANY, chatting, move
from tests.e2e.planes import RunningPlane
from tests.e2e.test_moves import LATER, MODEL, LlamaServer

pytestmark = [pytest.mark.kafka, pytest.mark.plane, pytest.mark.models, *IN_VLLMS_ENVIRONMENT]

VLLM_PATIENCE_S = 400.0
"""Beside the plane, on the same cores, it takes minutes to load."""
PROMPT_TOKENS = 1 + len("user: Count from one.\nassistant: ")
"""Of the tiny model: a byte each, and one that begins it."""


async def test_a_class_moves_from_llamacpp_to_openai_and_on_to_vllm_under_load_and_no_run_fails(
    plane: RunningPlane, tmp_path: Path
) -> None:
    server = await asyncio.to_thread(LlamaServer)
    tiny = vllm_config(str(write_tiny_llama(tmp_path / "model"))).model_dump(mode="json")
    async with chatting(plane, tmp_path / "config") as chat:
        await chat.serve_by("own", {"kind": "llamacpp", "model": MODEL, "context": 4_096})
        answers = [await chat.ask(FEW)]
        answers += await move(chat, "hosted", server.engine)
        answers += (moved := await move(chat, "gpu", tiny, VLLM_PATIENCE_S))
        later = [await chat.ask(FEW) for _ in range(LATER)]
        answers += later
        responses = await chat.responses(answers)
    assert {(answer.status, answer.steps["say"].attempts) for answer in answers} == {(RunStatus.SUCCEEDED, 1)}
    assert set(responses) == {1}
    assert moved[0].usage.by_step["say"].output_tokens == MANY
    usages = [answer.usage.by_step["say"] for answer in later]
    assert {(usage.input_tokens, usage.output_tokens) for usage in usages} == {(PROMPT_TOKENS, FEW)}
