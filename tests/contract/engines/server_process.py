"""A server that tests start as a process: it can be killed, started again in its place, and stopped in its tracks."""

from dataclasses import dataclass
from typing import Protocol

import psutil


class Startable(Protocol):
    """A server of one kind."""

    @property
    def pid(self) -> int:
        """Of its process."""

    async def start(self) -> None:
        """Returns when it listens, where it did before."""

    async def kill(self) -> None:
        """It and its children, by force."""


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
