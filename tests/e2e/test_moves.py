"""A model class that moves from llama.cpp in its workers to a server elsewhere, under load: no run notices."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from xllamacpp import CommonParams, Server

from schemas.base import RunStatus
from services.worker.engines.llamacpp import weights
from tests.e2e.moves import FEW, MANY, chatting, move
from tests.e2e.planes import RunningPlane

pytestmark = [pytest.mark.kafka, pytest.mark.plane, pytest.mark.models]

MODEL = "smollm2-135m"
LATER = 2


class LlamaServer:
    """llama.cpp's own server, in this process."""

    def __init__(self) -> None:
        params = CommonParams()
        params.model.path = str(weights(MODEL))
        params.n_parallel = 5
        params.n_ctx = 4_096
        params.cpuparams.n_threads = 1
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.ui = False
        params.endpoint_metrics = True
        params.verbosity = 1
        self._server: Any = Server(params)

    @property
    def url(self) -> str:
        """As clients take it."""
        return f"{self._server.listening_address}/v1"

    async def generated(self) -> int:
        """Tokens, as it counts them."""
        async with httpx.AsyncClient(trust_env=False) as http:
            page = await http.get(f"{self._server.listening_address}/metrics")
        families = {family.name: family for family in text_string_to_metric_families(page.text)}
        return int(families["llamacpp:tokens_predicted"].samples[0].value)


async def test_a_class_moves_from_llamacpp_to_openai_under_load_and_no_run_fails(
    plane: RunningPlane, tmp_path: Path
) -> None:
    server = await asyncio.to_thread(LlamaServer)
    async with chatting(plane, tmp_path / "config") as chat:
        await chat.serve_by("own", {"kind": "llamacpp", "model": MODEL, "context": 4_096})
        first = await chat.ask(FEW)
        long, *others = await move(chat, "hosted", {"kind": "openai", "base_url": server.url, "model": MODEL})
        before = await server.generated()
        later = [await chat.ask(FEW) for _ in range(LATER)]
        generated = await server.generated() - before
        answers = [first, long, *others, *later]
        responses = await chat.responses(answers)
        doers = chat.doers()
    assert {(answer.status, answer.steps["say"].attempts) for answer in answers} == {(RunStatus.SUCCEEDED, 1)}
    assert set(responses) == {1}
    assert {len(doers[answer.run_id]) for answer in answers} == {1}, "a task was done twice"
    assert long.usage.by_step["say"].output_tokens == MANY
    assert doers[long.run_id] == doers[first.run_id], "it was not let end where it began"
    assert generated == LATER * FEW, "the new backend did not answer"
