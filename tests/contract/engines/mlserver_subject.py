"""The engine `triton` at a server that is not Triton, as the contract suite sees it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from schemas import models
from services.worker.engines.triton import TritonEngine
from tests.contract.engines.mlserver_server import MLServer
from tests.contract.engines.server_process import ServerProcess
from tests.contract.engines.subjects import Subject


@asynccontextmanager
async def mlserver() -> AsyncIterator[Subject]:
    """The client against a real MLServer."""
    with TemporaryDirectory(prefix="headway-mlserver-") as folder:
        server = MLServer(Path(folder))
        server.add("shout")
        try:
            await server.start()

            def new(model: str = "shout") -> TritonEngine:
                return TritonEngine(mlserver_config(server, model), {})

            async def is_idle() -> bool:
                return not await server.is_busy()

            engine = new()
            await engine.start()
            yield Subject(
                engine,
                new,
                good={"TEXT": ["hello", "über"], "SECONDS": [0]},
                is_right=lambda output: output == {"SHOUTED": [["HELLO"], ["ÜBER"]], "LENGTHS": [[5], [4]]},
                malformed={"TEXT": ["a", 7], "SECONDS": [0]},
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


def mlserver_config(server: MLServer, model: str) -> models.TritonEngine:
    """Of a model that the engine loads and unloads."""
    return models.TritonEngine(kind="triton", address=server.address, model=model, model_control="explicit")
