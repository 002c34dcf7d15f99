"""vLLM's own server of OpenAI's protocol, with the tiny model, in the environment that `make test-vllm` makes."""

import os
import re
import sys
from pathlib import Path

import httpx

from headway.plane.ports import free_ports
from tests.contract.engines.server_process import Server, is_ok
from tests.contract.engines.subjects import SLOTS
from tests.contract.engines.tiny_llama import CONTEXT, write_tiny_llama

START_TIMEOUT_S = 300.0
KV_CACHE_BYTES = 64 << 20
NAME = "tiny"


class VllmServer(Server):
    """A process on a port of its own, which it keeps when it is started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._model = write_tiny_llama(folder / "model")
        (self._port,) = free_ports(1)

    @property
    def address(self) -> str:
        """As the engine `openai` takes it."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def start(self) -> None:
        """Returns when it listens: a minute, most of it imports."""
        await self.run(
            sys.executable,
            "-m",
            "vllm.entrypoints.openai.api_server",
            f"--model={self._model}",
            f"--served-model-name={NAME}",
            "--host=127.0.0.1",
            f"--port={self._port}",
            f"--max-num-seqs={SLOTS + 1}",
            f"--max-model-len={CONTEXT}",
            f"--kv-cache-memory-bytes={KV_CACHE_BYTES}",
            "--dtype=float32",
            "--enforce-eager",
            env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
            timeout_s=START_TIMEOUT_S,
        )

    async def is_ready(self) -> bool:
        return await is_ok(f"http://127.0.0.1:{self._port}/health")

    async def tokens(self) -> int:
        """Generated since its start, by its own counter."""
        async with httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(f"http://127.0.0.1:{self._port}/metrics")).text
        found = re.search(r"^vllm:generation_tokens_total{.*} (\S+)$", page, re.MULTILINE)
        assert found, page
        return round(float(found[1]))
