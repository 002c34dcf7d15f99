"""Every kind of engine, as the contract suite sees it: what it answers, what it refuses, and whether it works."""

import asyncio
import base64
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import psutil

from schemas import models
from schemas.base import Json
from services.worker.domain.engine import Call, Engine
from services.worker.engines.function import FunctionEngine
from services.worker.engines.llamacpp import LlamaCppEngine
from services.worker.engines.onnx import OnnxEngine
from services.worker.engines.openai import OpenAIEngine
from services.worker.engines.simulated import SimulatedEngine
from tests.contract.engines import functions_under_test

HERE = Path(__file__).parent
SLOTS = 2
_numbers = count(1)

Input = Mapping[str, Json]


@dataclass(frozen=True)
class Subject:
    """An engine that runs, and what is known about it."""

    engine: Engine
    good: Input
    is_right: Callable[[Json], bool]
    malformed: Input
    wrong_field: str
    too_long: Input
    endless: Input  # takes far longer than any test waits
    is_idle: Callable[[], Awaitable[bool]]  # as seen behind the engine, not by it
    counts_input: bool = False
    counts_output: bool = False
    refuses_asleep: bool = True


def call(value: Input, deadline_s: float = 30.0) -> Call:
    """A call with a task id of its own."""
    number = next(_numbers)
    return Call(f"run-{number}/step#1", f"run-{number}", "step", 1, "acme", None, value, deadline_s)


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 5.0) -> float:
    """Wait for a condition; the seconds it took."""
    started = time.monotonic()
    while not await condition():
        assert time.monotonic() - started < timeout_s, "waited too long"
        await asyncio.sleep(0.01)
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
    engine = LlamaCppEngine("smollm2-135m", slots=SLOTS, context=4_096, threads=1)
    await engine.start()

    async def is_idle() -> bool:
        """Whether the child computes nothing. Not `/slots`: asking it delays the server's look at its clients."""
        assert engine._server is not None
        child = psutil.Process(engine._server.pid)
        before = child.cpu_times()
        await asyncio.sleep(0.2)
        after = child.cpu_times()
        return after.user - before.user < 0.02

    yield _chat_subject(engine, is_idle)
    await engine.stop()


@asynccontextmanager
async def openai(server: Subject) -> AsyncIterator[Subject]:
    """The client against the real server of `llamacpp`."""
    llama = server.engine
    assert isinstance(llama, LlamaCppEngine)
    assert llama._client is not None
    url = llama._client._url.removesuffix("/chat/completions")
    engine = OpenAIEngine(url, "any", api_key=llama._api_key, api_key_env="LLM_API_KEY", by_proxy=False)
    await engine.start()
    yield replace(_chat_subject(engine, server.is_idle), refuses_asleep=False)
    await engine.stop()


LONG_LIST: Json = {"type": "array", "items": {"type": "integer"}, "minItems": 500}


def _chat_subject(engine: Engine, is_idle: Callable[[], Awaitable[bool]]) -> Subject:
    return Subject(
        engine,
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
    engine = FunctionEngine({"shout": path}, slots=SLOTS, home=HERE, folder=HERE)
    await engine.start()

    async def is_idle() -> bool:
        return functions_under_test.running == 0

    yield Subject(
        engine,
        good={"call": "shout", "text": "hello"},
        is_right=lambda output: output == {"text": "HELLO"},
        malformed={"call": "shout"},
        wrong_field="input.text",
        too_long={"call": "shout", "text": "a" * 101},
        endless={"call": "shout", "text": "a", "seconds": 60},
        is_idle=is_idle,
        refuses_asleep=False,
    )
    await engine.stop()


@asynccontextmanager
async def simulated() -> AsyncIterator[Subject]:
    engine = SimulatedEngine(models.SimulatedEngine(kind="simulated", latency_ms=2, max_batch=4))
    await engine.start()
    quiet = len(asyncio.all_tasks())

    async def is_idle() -> bool:
        return len(asyncio.all_tasks()) <= quiet

    yield Subject(
        engine,
        good={"question": "Why?"},
        is_right=lambda output: output == {"question": "Why?"},
        malformed={"simulate": {"latency_ms": -1}},
        wrong_field="input.simulate.latency_ms",
        too_long={"simulate": {"fail": "content_too_large"}},
        endless={"simulate": {"hang": True}},
        is_idle=is_idle,
    )
    await engine.stop()
