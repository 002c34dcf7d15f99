"""The engine `vllm`, and the engine `openai` at vLLM's own server, as the contract suite sees them: on a CPU."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from schemas import models
from schemas.base import Json
from services.worker.domain.engine import Engine
from services.worker.engines.openai import OpenAIEngine
from services.worker.engines.vllm import VllmEngine
from tests.contract.engines.server_process import ServerProcess
from tests.contract.engines.subjects import SLOTS, Subject, _chat_subject, until
from tests.contract.engines.tiny_llama import CONTEXT, write_tiny_llama
from tests.contract.engines.vllm_server import KV_CACHE_BYTES, NAME, VllmServer

FOUR: Json = {"type": "json_schema", "json_schema": {"name": "four", "schema": {"enum": ["4"]}}}


@asynccontextmanager
async def vllm() -> AsyncIterator[Subject]:
    with TemporaryDirectory(prefix="headway-vllm-") as folder:
        model = str(write_tiny_llama(Path(folder)))

        def new(name: str = model) -> VllmEngine:
            return VllmEngine(vllm_config(name), slots=SLOTS)

        engine = new()
        await engine.start()

        async def is_idle() -> bool:
            """Whether vLLM's scheduler makes no step: while it has a request it tells of one after the other."""
            if engine._model is None:
                return True
            before = await steps.count()
            await asyncio.sleep(0.2)
            return await steps.count() == before

        steps = Steps(engine)
        subject = _subject(engine, new, is_idle)
        yield replace(subject, unknown=lambda: new("none-such"), server=Core(engine), made=steps.count)
        await engine.stop()


@asynccontextmanager
async def openai_at_vllm() -> AsyncIterator[Subject]:
    """The client against vLLM's own server."""
    with TemporaryDirectory(prefix="headway-vllm-") as folder:
        server = VllmServer(Path(folder))
        try:
            await server.start()

            def new(name: str = NAME) -> OpenAIEngine:
                return OpenAIEngine(server.address, name, by_proxy=False)

            async def is_idle() -> bool:
                before = await server.tokens()
                await asyncio.sleep(0.2)
                return await server.tokens() == before

            engine = new()
            await engine.start()
            subject = _subject(engine, new, is_idle)
            yield replace(subject, unknown=lambda: new("none-such"), server=ServerTree(server), made=server.tokens)
            await engine.stop()
        finally:
            await server.kill()


def _subject(engine: Engine, new: Callable[[], Engine], is_idle: Callable[[], Awaitable[bool]]) -> Subject:
    """The tiny model says nothing that is right, but in the form that it is told to keep to."""
    subject = _chat_subject(engine, new, is_idle)
    return replace(
        subject,
        good={**subject.good, "response_format": FOUR},
        is_right=lambda output: output == {"text": '"4"', "finish_reason": "stop"},
    )


def vllm_config(model: str, **more: object) -> models.VllmEngine:
    """Of the tiny model: as little as it needs, and ready as soon as it can be."""
    options = {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": KV_CACHE_BYTES}
    return models.VllmEngine.model_validate({
        "kind": "vllm", "model": model, "context": CONTEXT, "options": options, **more,
    })  # fmt: skip


def loaded(engine: VllmEngine) -> Any:
    """Its VllmModel, whose module is there where vLLM is."""
    assert engine._model is not None
    return engine._model


class Steps:
    """How many the scheduler of an engine has made, by what it tells after each: one is a token of every call."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self._told: object = None
        self._count = 0

    async def count(self) -> int:
        """It goes up whenever there was one since the last look."""
        told = loaded(self._engine)._scheduler.load
        self._count += told is not self._told
        self._told = told
        return self._count


@dataclass(frozen=True)
class ServerTree(ServerProcess):
    """What computes stands still, too."""

    def freeze(self) -> None:
        for process in _tree(self.startable.pid):
            process.suspend()

    def thaw(self) -> None:
        for process in _tree(self.startable.pid):
            process.resume()


def _tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@dataclass(frozen=True)
class Core:
    """vLLM's own processes. Killed, they come back with another worker, or in this one when the engine is stopped."""

    engine: VllmEngine

    @property
    def pid(self) -> int:
        """Of the process that has the scheduler; those that compute are its children."""
        (process,) = loaded(self.engine)._llm.engine_core.resources.engine_manager.processes
        assert isinstance(process.pid, int)
        return process.pid

    async def vanish(self) -> None:
        psutil.Process(self.pid).kill()

        async def ended() -> bool:
            return bool(loaded(self.engine).ended)

        await until(ended)

    async def come_back(self) -> None:
        await self.engine.stop()

    def freeze(self) -> None:
        for process in _tree(self.pid):
            process.suspend()

    def thaw(self) -> None:
        for process in _tree(self.pid):
            process.resume()
