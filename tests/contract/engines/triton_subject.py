"""The engine `triton` as the contract suite sees it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from schemas import models
from services.worker.engines.triton import TritonEngine
from tests.contract.engines.server_process import ServerProcess
from tests.contract.engines.subjects import Subject
from tests.contract.engines.triton_server import TritonServer, installed


@asynccontextmanager
async def triton() -> AsyncIterator[Subject]:
    """The client against a real Triton. TritonMissingError where there is none to be had."""
    installation = await asyncio.to_thread(installed)
    with TemporaryDirectory(prefix="headway-triton-") as folder:
        server = TritonServer(installation, Path(folder))
        try:
            await server.start()

            def new(model: str = "shout") -> TritonEngine:
                return TritonEngine(triton_config(server, model), {})

            async def is_idle() -> bool:
                return not [*server.desk.iterdir()]

            engine = new()
            await engine.start()
            yield Subject(
                engine,
                new,
                good={"TEXT": ["hello", "über"], "SECONDS": [0]},
                is_right=lambda output: output == {"SHOUTED": ["HELLO", "ÜBER"], "LENGTHS": [5, 4]},
                malformed={"TEXT": ["a", 7]},
                wrong_field="input.TEXT.1",
                too_long={"TEXT": ["a"], "SECONDS": [1.0, 2.0]},
                endless={"TEXT": ["a"], "SECONDS": [600.0]},
                is_idle=is_idle,
                unknown=lambda: new("none-such"),
                server=ServerProcess(server),
            )
            await engine.stop()
        finally:
            await server.kill()


def triton_config(server: TritonServer, model: str) -> models.TritonEngine:
    """Of a model that the engine loads and unloads."""
    return models.TritonEngine(kind="triton", address=server.address, model=model, model_control="explicit")
