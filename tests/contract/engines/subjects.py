"""Every kind of engine, as the contract suite sees it: what it answers, what it refuses, and whether it works."""

import asyncio
import base64
import json
import re
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Flag, auto
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

import psutil

from schemas import models
from schemas.base import Json
from services.worker.domain.engine import Call, Engine
from services.worker.engines.function import FunctionEngine
from services.worker.engines.http import HttpEngine
from services.worker.engines.llamacpp import LlamaCppEngine
from services.worker.engines.onnx import OnnxEngine
from services.worker.engines.openai import OpenAIEngine
from services.worker.engines.simulated import SimulatedEngine
from tests.contract.engines import functions_under_test
from tests.scripted_server import Asked, Reply, ScriptedServer, scripted_server

HERE = Path(__file__).parent
SLOTS = 2
_numbers = count(1)

Input = Mapping[str, Json]


class Trait(Flag):
    """What a kind of engine is, and another is not: which cases it has to pass."""

    PLAIN = 0
    UNLOADS = auto()
    """Asleep, it has no model, and refuses calls."""
    NAMES_A_MODEL = auto()
    """It is told which, and there may be no such."""
    SERVER = auto()
    """What answers is a process of its own, that may die and stand still."""
    OUTLIVED = auto()
    """The server is there before the engine, and after it."""
    SCRIPTED = auto()
    """The server says whatever a test wants."""
    STREAMS = auto()
    """Of a text it tells each piece as it comes, and its server counts what it makes."""
    MEASURED = auto()
    """It tells how much it has to do."""


class Server(Protocol):
    """The process behind an engine."""

    async def vanish(self) -> None:
        """As if killed."""

    async def come_back(self) -> None:
        """In the same place."""

    def freeze(self) -> None:
        """As if stopped: it takes connections and says nothing."""

    def thaw(self) -> None:
        """It goes on."""


@dataclass(frozen=True)
class Subject:
    """An engine that runs, and what is known about it."""

    engine: Engine
    new: Callable[[], Engine]  # another one of its kind
    good: Input
    is_right: Callable[[Json], bool]
    malformed: Input
    wrong_field: str
    too_long: Input
    endless: Input  # takes far longer than any test waits
    is_idle: Callable[[], Awaitable[bool]]  # as seen behind the engine, not by it
    counts_input: bool = False
    counts_output: bool = False
    unknown: Callable[[], Engine] | None = None  # one whose model there is not
    server: Server | None = None
    script: ScriptedServer | None = None
    made: Callable[[], Awaitable[int]] | None = None  # tokens, by the server's own count while it works


def call(value: Input, deadline_s: float = 30.0, on_text: Callable[[str], None] | None = None) -> Call:
    """A call with a task id of its own."""
    number = next(_numbers)
    return Call(f"run-{number}/step#1", f"run-{number}", "step", 1, "acme", None, value, deadline_s, on_text=on_text)


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 5.0, every_s: float = 0.01) -> float:
    """Wait for a condition; the seconds it took."""
    started = time.monotonic()
    while not await condition():
        assert time.monotonic() - started < timeout_s, "waited too long"
        await asyncio.sleep(every_s)
    return time.monotonic() - started


@asynccontextmanager
async def onnx() -> AsyncIterator[Subject]:
    engine = OnnxEngine("minilm-l6-int8")
    await engine.start()

    async def is_idle() -> bool:
        """Whether the engine's only thread is free."""
        job = asyncio.get_running_loop().run_in_executor(engine._thread, lambda: None)
        done, _ = await asyncio.wait([job], timeout=0.1)
        return bool(done)

    yield Subject(
        engine,
        lambda: OnnxEngine("minilm-l6-int8"),
        unknown=lambda: OnnxEngine("none-such"),
        good={"texts": ["When are default parameter values evaluated?", "x"]},
        is_right=_are_two_unit_vectors,
        malformed={"texts": ["a", 7]},
        wrong_field="input.texts.1",
        too_long={"texts": ["a" * 40_000]},
        endless={"texts": ["word " * 300] * 256},
        is_idle=is_idle,
        counts_input=True,
    )
    await engine.stop()


def _are_two_unit_vectors(output: Json) -> bool:
    assert output["dimensions"] == 384
    vectors = [struct.unpack("<384f", base64.b64decode(vector)) for vector in output["vectors"]]
    return len(vectors) == 2 and all(abs(sum(x * x for x in vector) - 1) < 1e-4 for vector in vectors)


@asynccontextmanager
async def llamacpp() -> AsyncIterator[Subject]:
    def new(model: str = "smollm2-135m") -> LlamaCppEngine:
        return LlamaCppEngine(model, slots=SLOTS, context=4_096, threads=1)

    engine = new()
    await engine.start()

    async def is_idle() -> bool:
        """Whether the child computes nothing. Not `/slots`: asking it delays the server's look at its clients."""
        assert engine._server is not None
        child = psutil.Process(engine._server.pid)
        before = child.cpu_times()
        await asyncio.sleep(0.2)
        after = child.cpu_times()
        return after.user - before.user < 0.02

    async def made() -> int:
        """Runs of the model: one for each token, and one for some of a prompt's."""
        assert engine._client is not None
        assert engine._client._calls is not None
        page = (await engine._client._calls.page(engine._client._metrics_url)).content
        found = re.search(rb"^llamacpp:n_decode_total (\d+)$", page, re.MULTILINE)
        assert found, page
        return int(found[1])

    subject = replace(_chat_subject(engine, new, is_idle), made=made)
    yield replace(subject, unknown=lambda: new("none-such"), server=_Child(engine))
    await engine.stop()


@dataclass(frozen=True)
class _Child:
    """Of `llamacpp`: the engine brings it back."""

    engine: LlamaCppEngine

    def _process(self) -> psutil.Process:
        assert self.engine._server is not None
        return psutil.Process(self.engine._server.pid)

    async def vanish(self) -> None:
        assert self.engine._server is not None
        self.engine._server.kill()
        await self.engine._server.wait()

    async def come_back(self) -> None:
        pass

    def freeze(self) -> None:
        self._process().suspend()

    def thaw(self) -> None:
        self._process().resume()


@asynccontextmanager
async def openai_at_llamacpp(server: Subject) -> AsyncIterator[Subject]:
    """The client against the real server of `llamacpp`."""
    llama = server.engine
    assert isinstance(llama, LlamaCppEngine)
    assert llama._client is not None
    url = llama._client._url.removesuffix("/chat/completions")
    key = llama._api_key

    def new() -> OpenAIEngine:
        return OpenAIEngine(url, "any", api_key=key, api_key_env="LLM_API_KEY", by_proxy=False)

    engine = new()
    await engine.start()
    yield replace(_chat_subject(engine, new, server.is_idle), made=server.made)
    await engine.stop()


LONG_LIST: Json = {"type": "array", "items": {"type": "integer"}, "minItems": 500}


def _chat_subject(engine: Engine, new: Callable[[], Engine], is_idle: Callable[[], Awaitable[bool]]) -> Subject:
    return Subject(
        engine,
        new,
        good={"messages": [{"role": "user", "content": "What is 2+2?"}], "max_tokens": 16},
        is_right=lambda output: "4" in output["text"] and output["finish_reason"] in ("stop", "length"),
        malformed={"messages": [{"role": "user", "content": 7}]},
        wrong_field="input.messages.0.content",
        too_long={"messages": [{"role": "user", "content": "word " * 4_000}], "max_tokens": 1},
        endless={
            "messages": [{"role": "user", "content": "Count."}],
            "max_tokens": 1_900,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": LONG_LIST}},
        },
        is_idle=is_idle,
        counts_input=True,
        counts_output=True,
    )


@asynccontextmanager
async def function(name: str) -> AsyncIterator[Subject]:
    path = f"{functions_under_test.__name__}:{name}"

    def new() -> FunctionEngine:
        return FunctionEngine({"shout": path}, slots=SLOTS, home=HERE, folder=HERE)

    engine = new()
    await engine.start()

    async def is_idle() -> bool:
        return functions_under_test.running == 0

    yield Subject(
        engine,
        new,
        good={"call": "shout", "text": "hello"},
        is_right=lambda output: output == {"text": "HELLO"},
        malformed={"call": "shout"},
        wrong_field="input.text",
        too_long={"call": "shout", "text": "a" * 101},
        endless={"call": "shout", "text": "a", "seconds": 60},
        is_idle=is_idle,
    )
    await engine.stop()


@asynccontextmanager
async def simulated() -> AsyncIterator[Subject]:
    def new() -> SimulatedEngine:
        return SimulatedEngine(models.SimulatedEngine(kind="simulated", latency_ms=2, max_batch=4))

    engine = new()
    await engine.start()
    quiet = len(asyncio.all_tasks())

    async def is_idle() -> bool:
        return len(asyncio.all_tasks()) <= quiet

    yield Subject(
        engine,
        new,
        good={"question": "Why?"},
        is_right=lambda output: output == {"question": "Why?"},
        malformed={"simulate": {"latency_ms": -1}},
        wrong_field="input.simulate.latency_ms",
        too_long={"simulate": {"fail": "content_too_large"}},
        endless={"simulate": {"hang": True}},
        is_idle=is_idle,
    )
    await engine.stop()


@dataclass(frozen=True)
class _Scripted:
    """A server in this process."""

    script: ScriptedServer

    async def vanish(self) -> None:
        await self.script.close()

    async def come_back(self) -> None:
        await self.script.open()

    def freeze(self) -> None:
        self.script.answers.clear()

    def thaw(self) -> None:
        self.script.answers.set()

    async def is_idle(self) -> bool:
        return self.script.working == 0


@asynccontextmanager
async def openai() -> AsyncIterator[Subject]:
    """The client against a server that knows one sentence."""
    async with scripted_server() as script:
        script.reply = partial(_chat_or_load, script)
        server = _Scripted(script)

        def new(model: str = "small") -> OpenAIEngine:
            return OpenAIEngine(f"http://127.0.0.1:{script.port}/v1", model, by_proxy=False)

        engine = new()
        await engine.start()
        subject = _chat_subject(engine, new, server.is_idle)
        yield replace(subject, unknown=lambda: new("none-such"), server=server, script=script)
        await engine.stop()


def _chat_or_load(script: ScriptedServer, asked: Asked) -> Reply | None:
    if asked.line.startswith("GET /metrics "):
        lines = f"vllm:num_requests_running {script.working - 1}.0\nvllm:num_requests_waiting 0.0\n"
        return Reply(200, lines.encode())
    return _chat(asked)


def _chat(asked: Asked) -> Reply | None:
    if asked.json["model"] != "small":
        return Reply(404, b'{"error": {"code": "model_not_found"}}')
    if b"Count." in asked.body:
        return None
    if len(asked.body) > 10_000:
        return Reply(400, b'{"error": {"code": "context_length_exceeded"}}')
    choice = {"message": {"content": "2+2 is 4."}, "finish_reason": "stop"}
    return Reply(
        200, json.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 6}}).encode()
    )


@asynccontextmanager
async def http() -> AsyncIterator[Subject]:
    """The client against a function that shouts."""
    async with scripted_server() as script:
        script.reply = _shout
        server = _Scripted(script)
        config = models.HttpEngine.model_validate({
            "kind": "http",
            "url": f"http://127.0.0.1:{script.port}/shout",
            "output": "/result",
            "input_tokens": "/letters",
            "health_input": {"text": "a"},
        })  # fmt: skip
        engine = HttpEngine(config, {}, by_proxy=False)
        await engine.start()
        yield Subject(
            engine,
            lambda: HttpEngine(config, {}, by_proxy=False),
            good={"text": "hello"},
            is_right=lambda output: output == {"text": "HELLO"},
            malformed={"text": 7},
            wrong_field="input",
            too_long={"text": "a" * 101},
            endless={"text": "for ever"},
            is_idle=server.is_idle,
            counts_input=True,
            server=server,
            script=script,
        )
        await engine.stop()


def _shout(asked: Asked) -> Reply | None:
    text = asked.json["text"]
    if not isinstance(text, str):
        return Reply(422, b"{}")
    if len(text) > 100:
        return Reply(413, b"")
    if text == "for ever":
        return None
    return Reply(200, json.dumps({"result": {"text": text.upper()}, "letters": len(text)}).encode())
