"""vLLM's own server of OpenAI's protocol, with the tiny model, in the environment that `make test-vllm` makes."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path

import httpx

from headway.plane.ports import free_ports
from tests.contract.engines.subjects import SLOTS
from tests.contract.engines.tiny_llama import CONTEXT, write_tiny_llama
from tests.contract.engines.triton_server import die_with_parent

START_TIMEOUT_S = 300.0
KV_CACHE_BYTES = 64 << 20
NAME = "tiny"


class VllmServer:
    """A process on a port of its own, which it keeps when it is started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model = write_tiny_llama(folder / "model")
        (self._port,) = free_ports(1)
        self._process: Process | None = None

    @property
    def address(self) -> str:
        """As the engine `openai` takes it."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def pid(self) -> int:
        """Of the server; its scheduler and what computes are its children."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it listens: a minute, most of it imports."""
        log_path = self._folder / "log"
        with log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "vllm.entrypoints.openai.api_server",
                f"--model={self._model}",
                f"--served-model-name={NAME}",
                "--host=127.0.0.1",
                f"--port={self._port}",
                f"--max-num-seqs={SLOTS + 1}",
                f"--max-model-len={CONTEXT}",
                f"--kv-cache-memory-bytes={KV_CACHE_BYTES}",
                "--dtype=float32",
                "--enforce-eager",
                cwd=self._folder,
                env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
                stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self._is_ready():
                if self._process.returncode is not None:
                    raise RuntimeError(f"vLLM's server ended: {log_path.read_text()[-2_000:]}")
                await asyncio.sleep(0.2)

    async def _is_ready(self) -> bool:
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                return (await client.get(f"http://127.0.0.1:{self._port}/health")).status_code == 200
        except httpx.TransportError:
            return False

    async def tokens(self) -> int:
        """Generated since its start, by its own counter."""
        async with httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(f"http://127.0.0.1:{self._port}/metrics")).text
        found = re.search(r"^vllm:generation_tokens_total{.*} (\S+)$", page, re.MULTILINE)
        assert found, page
        return round(float(found[1]))

    async def kill(self) -> None:
        """It and its children, by force."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
