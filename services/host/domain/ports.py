"""What a host needs of a machine: to run a worker as a process, and to ask how it is."""

from typing import Protocol

from schemas.models import Queue
from services.host.domain.replicas import Replica


class WorkerProcess(Protocol):
    """A worker process; it never outlives the host."""

    async def wait(self) -> int:
        """Returns its exit code (negative: the signal) when it has ended."""

    def stop(self) -> None:
        """Asks it to drain and end."""

    def kill(self) -> None:
        """Ends it now."""

    async def is_ready(self) -> bool | None:
        """None: its side door did not answer."""

    async def exposition(self) -> str | None:
        """Its metrics in Prometheus's text format; None: no answer within a second."""


class Launcher(Protocol):
    """Starts workers."""

    async def start(self, replica: Replica, queue: Queue) -> WorkerProcess:
        """Raises OSError when the machine cannot."""
