"""A server that tests start as a process: it can be killed, started again in its place, and stopped in its tracks."""

import asyncio
import ctypes
import os
import signal
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import psutil

PR_SET_PDEATHSIG = 1
LOG_END = 2_000


def die_with_parent() -> None:
    """Even when the tests are killed. What a server starts looks after its server itself."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def is_ok(url: str) -> bool:
    """Whether somebody answers there, and with 200."""
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(url)).status_code == 200
    except httpx.TransportError:
        return False


class Startable(Protocol):
    """A server of one kind."""

    @property
    def pid(self) -> int:
        """Of its process."""

    async def start(self) -> None:
        """Returns when it listens, where it did before."""

    async def kill(self) -> None:
        """It and its children, by force."""


class Server(ABC):
    """A program in a process group of its own, in a folder of its own: what it says is in the `log` there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """Of the program; what it started are its children."""
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    async def is_ready(self) -> bool:
        """Whether it may be sent work."""

    async def run(self, *command: str | Path, env: Mapping[str, str], timeout_s: float) -> None:
        """Returns when it is ready. RuntimeError with its last words when it ends instead."""
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command, cwd=self._folder, env=env, stdin=DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        async with asyncio.timeout(timeout_s):
            while not await self.is_ready():
                if self._process.returncode is not None:
                    raise RuntimeError(f"{command[0]} ended: {log.read_text(errors='replace')[-LOG_END:]}")
                await asyncio.sleep(0.1)

    async def kill(self) -> None:
        """It and its children, by force."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


@dataclass(frozen=True)
class ServerProcess:
    """What a contract subject may do to it."""

    startable: Startable

    async def vanish(self) -> None:
        await self.startable.kill()

    async def come_back(self) -> None:
        await self.startable.start()

    def freeze(self) -> None:
        psutil.Process(self.startable.pid).suspend()

    def thaw(self) -> None:
        psutil.Process(self.startable.pid).resume()
