"""MLServer, a real server of the Open Inference Protocol that is not Triton, with models of ours.

Its environment is its own, since it pins what the project has in other versions; `make test-engines` makes it.
"""

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.plane.ports import free_ports
from tests.contract.engines.triton_server import die_with_parent

PROGRAM = Path(__file__).parents[3] / ".venv-mlserver" / "bin" / "mlserver"
START_TIMEOUT_S = 60.0
MODELS = Path(__file__).parent / "mlserver_models"


class MLServer:
    """A process on ports of its own, which it keeps when it is started again. Models are loaded when asked for."""

    def __init__(self, folder: Path, *, workers: int = 0) -> None:
        """`workers`: processes beside the server's own that run models; without any it runs them itself."""
        if not PROGRAM.exists():
            pytest.skip("MLServer is not there: `make test-engines` installs it")
        self._folder = folder
        self._workers = workers
        self._http_port, self._grpc_port, self._metrics_port = free_ports(3)
        self._process: Process | None = None
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

    @property
    def pid(self) -> int:
        """Of the server; its workers are its children."""
        assert self._process is not None
        return self._process.pid

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
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                PROGRAM, "start", self._folder / "models", cwd=self._folder,
                env={"PATH": os.environ["PATH"], **{f"MLSERVER_{name}": value for name, value in settings.items()}},
                stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self._is_ready():
                if self._process.returncode is not None:
                    raise RuntimeError(f"MLServer ended: see {self._folder / 'log'}")
                await asyncio.sleep(0.1)

    async def _is_ready(self) -> bool:
        """Both of its doors are open: it opens them side by side."""
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                is_ready = (
                    await client.get(f"http://127.0.0.1:{self._http_port}/v2/health/ready")
                ).status_code == 200
            _, writer = await asyncio.open_connection("127.0.0.1", self._grpc_port)
            writer.close()
        except (httpx.TransportError, ConnectionRefusedError):
            return False
        return is_ready

    async def is_busy(self) -> bool:
        """Whether a call runs."""
        return any(self.desk.iterdir())

    async def kill(self) -> None:
        """It and its workers, by force."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        for paper in self.desk.iterdir():
            paper.unlink()
