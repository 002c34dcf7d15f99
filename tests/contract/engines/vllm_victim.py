"""A process with the engine `vllm`, to be killed: `python -m tests.contract.engines.vllm_victim FOLDER`."""

import asyncio
import multiprocessing
import sys
from pathlib import Path

from services.worker.engines.vllm import VllmEngine
from tests.contract.engines.tiny_llama import write_tiny_llama
from tests.contract.engines.vllm_subject import vllm_config


async def main(folder: Path) -> None:
    """Says the id of vLLM's process when the engine has answered, and lives on."""
    engine = VllmEngine(vllm_config(str(write_tiny_llama(folder))), slots=1)
    await engine.start()
    await engine.health()
    (core,) = multiprocessing.active_children()
    print("core", core.pid, flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
