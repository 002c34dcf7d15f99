"""MLServer, a real server of the Open Inference Protocol that is not Triton, with models of ours.

Its environment is its own, since it pins what the project has in other versions; `make test-engines` makes it.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from headway.plane.ports import free_ports
from tests.contract.engines.server_process import Server, is_ok

PROGRAM = Path(__file__).parents[3] / ".venv-mlserver" / "bin" / "mlserver"
START_TIMEOUT_S = 60.0
MODELS = Path(__file__).parent / "mlserver_models"


class MLServer(Server):
    """A process on ports of its own, which it keeps when it is started again. Models are loaded when asked for."""

    def __init__(self, folder: Path, *, workers: int = 0) -> None:
        """`workers`: processes beside the server's own that run models; without any it runs them itself."""
        if not PROGRAM.exists():
            pytest.skip("MLServer is not there: `make test-engines` installs it")
        super().__init__(folder)
        self._workers = workers
        self._http_port, self._grpc_port, self._metrics_port = free_ports(3)
        self.desk = folder / "desk"
        self.desk.mkdir()

    def add(self, name: str, **changes: Any) -> None:
        """One more model in its repository: `shout`, told otherwise."""
        model = self._folder / "models" / name
        model.mkdir(parents=True)
        (model / "shout.py").write_text((MODELS / "shout.py").read_text())
        settings = json.loads((MODELS / "shout.json").read_text().replace("DESK", str(self.desk)))
        (model / "model-settings.json").write_text(json.dumps({"name": name, **settings, **changes}))

    @property
    def address(self) -> str:
        """Of gRPC."""
        return f"127.0.0.1:{self._grpc_port}"

    async def start(self) -> None:
        """Returns when it listens."""
        settings = {
            "HOST": "127.0.0.1",
            "HTTP_PORT": str(self._http_port),
            "GRPC_PORT": str(self._grpc_port),
            "METRICS_PORT": str(self._metrics_port),
            "PARALLEL_WORKERS": str(self._workers),
            "LOAD_MODELS_AT_STARTUP": "false",
        }
        await self.run(
            PROGRAM,
            "start",
            self._folder / "models",
            env={"PATH": os.environ["PATH"], **{f"MLSERVER_{name}": value for name, value in settings.items()}},
            timeout_s=START_TIMEOUT_S,
        )

    async def is_ready(self) -> bool:
        """Both of its doors are open: it opens them side by side."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._grpc_port)
        except ConnectionRefusedError:
            return False
        writer.close()
        return await is_ok(f"http://127.0.0.1:{self._http_port}/v2/health/ready")

    async def is_busy(self) -> bool:
        """Whether a call runs."""
        return any(self.desk.iterdir())

    async def kill(self) -> None:
        """It and its workers, by force."""
        await super().kill()
        for paper in self.desk.iterdir():
            paper.unlink()
