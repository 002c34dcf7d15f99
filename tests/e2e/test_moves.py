"""A model class that moves from llama.cpp in its workers to a server elsewhere, under load: no run notices.

At that server, which counts its tokens: they are heard as they come, and end when nobody wants them any more.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from xllamacpp import CommonParams, Server

from headway.text import pieces_of, run_id
from schemas.base import RunStatus
from schemas.config import DEFAULT_TENANT
from schemas.events import RunCancelled
from schemas.topics import EVENTS
from services.worker.engines.llamacpp import weights
from tests.e2e.moves import FEW, MANY, Chat, Engine, chatting, move
from tests.e2e.planes import RunningPlane

pytestmark = [pytest.mark.kafka, pytest.mark.plane, pytest.mark.models]

MODEL = "smollm2-135m"
LATER = 2
ENDLESS = 900
STOPS_WITHIN_MS = 1_000
STILL_S = 0.3
"""In which a model at work makes several tokens."""


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

    @property
    def engine(self) -> Engine:
        """As a backend names it."""
        return {"kind": "openai", "base_url": self.url, "model": MODEL}

    async def generated(self) -> int:
        """Tokens of answers that have ended, as it counts them."""
        return await self._count("llamacpp:tokens_predicted")

    async def runs(self) -> int:
        """Of its model, as it counts them while they are made: one for each token, and some for a prompt."""
        return await self._count("llamacpp:n_decode")

    async def _count(self, metric: str) -> int:
        async with httpx.AsyncClient(trust_env=False) as http:
            page = await http.get(f"{self._server.listening_address}/metrics")
        families = {family.name: family for family in text_string_to_metric_families(page.text)}
        return int(families[metric].samples[0].value)


@pytest.fixture(scope="module")
async def server() -> LlamaServer:
    return await asyncio.to_thread(LlamaServer)


@pytest.fixture(scope="module")
async def chat(plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chat]:
    async with chatting(plane, tmp_path_factory.mktemp("chat") / "config") as chat:
        yield chat


async def test_a_class_moves_from_llamacpp_to_openai_under_load_and_no_run_fails(
    chat: Chat, server: LlamaServer
) -> None:
    await chat.serve_by("own", {"kind": "llamacpp", "model": MODEL, "context": 4_096})
    first = await chat.ask(FEW)
    long, *others = await move(chat, "hosted", server.engine)
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


async def test_words_are_heard_as_they_come_and_together_are_the_answer(
    plane: RunningPlane, chat: Chat, server: LlamaServer
) -> None:
    await chat.serve_by("hosted", server.engine)
    request_id, heard = f"words-{uuid4()}", ""
    async with pieces_of(plane.endpoints.redis, run_id(DEFAULT_TENANT, request_id)) as pieces:
        await chat.submit(FEW, request_id=request_id)
        answer = (await chat.answer(request_id)).output["text"]
        async with asyncio.timeout(10):
            while heard != answer:
                heard += (await anext(pieces)).text


async def test_a_cancel_ends_the_tokens_within_a_second(plane: RunningPlane, chat: Chat, server: LlamaServer) -> None:
    await chat.serve_by("hosted", server.engine)
    request_id = await chat.submit(ENDLESS)
    run = run_id(DEFAULT_TENANT, request_id)
    async with pieces_of(plane.endpoints.redis, run) as pieces, asyncio.timeout(30):
        await anext(pieces)
    event = RunCancelled(run_id=run, tenant=DEFAULT_TENANT, cancelled_by="a test")
    asked_ms = await plane.publish(event.model_dump_json().encode(), key=run.encode(), topic=EVENTS)
    assert await last_token_ms(server) - asked_ms <= STOPS_WITHIN_MS
    assert (await chat.answer(request_id)).status is RunStatus.CANCELLED


async def last_token_ms(server: LlamaServer) -> float:
    """When the server was last seen to make one, by the clock of the broker's stamps."""
    runs, seen_at = -1, time.time()
    while time.time() - seen_at < STILL_S:
        if (now := await server.runs()) != runs:
            runs, seen_at = now, time.time()
        await asyncio.sleep(0.02)
    return seen_at * 1_000
