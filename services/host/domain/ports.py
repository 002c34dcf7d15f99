"""What a host needs of a machine: to run a worker as a process, and to ask how it is."""

from typing import Protocol

from schemas.models import Queue
from services.host.domain.replicas import Answer, Replica


class WorkerProcess(Protocol):
    """A worker process; it never outlives the host."""

    async def wait(self) -> int:
        """Returns its exit code (negative: the signal) when it has ended."""

    def sleep(self) -> None:
        """Asks it to end its tasks and sleep; only once its side door has answered."""

    def wake(self) -> None:
        """Asks it to work again; only once its side door has answered."""

    def stop(self) -> None:
        """Asks it to drain and end."""

    def kill(self) -> None:
        """Ends it now."""

    async def answer(self) -> Answer | None:
        """None: its side door did not."""

    async def exposition(self) -> str | None:
        """Its metrics in Prometheus's text format; None: no answer within a second."""


class Launcher(Protocol):
    """Starts workers."""

    async def start(self, replica: Replica, queue: Queue, *, asleep: bool) -> WorkerProcess:
        """Raises OSError when the machine cannot."""
