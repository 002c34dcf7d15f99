"""Workers as child processes, each with a side door on a free port of this machine."""

import asyncio
import signal
import socket
from contextlib import suppress
from pathlib import Path

from schemas.models import Queue
from services.chassis.forks.client import Child, ForkServer
from services.chassis.forks.messages import Fork
from services.chassis.health import ASLEEP
from services.chassis.settings import environment
from services.host.domain.replicas import Answer, Replica

WORKER = "services.worker.app"
"""By its name alone: services do not import each other."""
OF_MOST_ENGINES = ("numpy",)
"""0.1 s of CPU that every worker with a small model would spend. Libraries with threads of their own do not survive a
fork, and are left to those who need them."""
LOCAL = "127.0.0.1"
PROBE_TIMEOUT_S = 1.0
MAX_ANSWER_BYTES = 16 << 20
MAX_LOG_BYTES = 8 << 20


class ChildProcess:
    """A worker that runs."""

    def __init__(self, child: Child, port: int) -> None:
        self._child = child
        self._port = port

    @property
    def pid(self) -> int:
        return self._child.pid

    async def wait(self) -> int:
        return await self._child.wait()

    def sleep(self) -> None:
        self._child.send(signal.SIGUSR1)

    def wake(self) -> None:
        self._child.send(signal.SIGUSR2)

    def stop(self) -> None:
        self._child.send(signal.SIGTERM)

    def kill(self) -> None:
        self._child.send(signal.SIGKILL)

    async def answer(self) -> Answer | None:
        answer = await _get(self._port, "/readyz")
        if answer is None:
            return None
        status, body = answer
        if status == 200:
            return "ready"
        lines = body.decode(errors="replace").splitlines()
        return "asleep" if lines and all(line.endswith(f": {ASLEEP}") for line in lines) else "neither"

    async def exposition(self) -> str | None:
        answer = await _get(self._port, "/metrics")
        return None if answer is None or answer[0] != 200 else answer[1].decode(errors="replace")


class ChildLauncher:
    """Starts workers, as `headway worker` would, from a process that has imported what they need.

    Their output is appended to `<home>/logs/worker-<name>.log`, or else goes where that of this process goes.
    A port that somebody takes between its choice and its use ends the worker; the next attempt chooses another.
    """

    def __init__(self, instance: str, home: Path, config: Path | None, *, to_files: bool = True) -> None:
        self._logs = home / "logs" if to_files else None
        self._forks = ForkServer(
            (WORKER, *OF_MOST_ENGINES),
            environment(
                HEADWAY_HOME=str(home),
                HEADWAY_WORKER_HOST=instance,
                HEADWAY_WORKER_METRICS_HOST=LOCAL,
                **({"HEADWAY_CONFIG": str(config)} if config else {}),
            ),
        )

    async def __aenter__(self) -> "ChildLauncher":
        """Call it in the main thread: the workers die with the thread that did."""
        await self._forks.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Workers that are left are killed."""
        await self._forks.__aexit__(*error)

    async def start(self, replica: Replica, queue: Queue, *, asleep: bool) -> ChildProcess:
        """Raises OSError when the machine cannot."""
        port = _free_port()
        variables = {"HEADWAY_WORKER_METRICS_PORT": str(port), "HEADWAY_WORKER_ASLEEP": str(asleep)}
        log = _log(self._logs / f"worker-{replica.name}.log") if self._logs else None
        order = Fork(title=title(queue), arguments=(queue.label,), environment=variables, log=log)
        return ChildProcess(await self._forks.fork(order), port)


def title(queue: Queue) -> str:
    """As process listings show a worker of it: the command that would start one by hand."""
    return f"headway worker --model-class {queue.label}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOCAL, 0))
        port: int = probe.getsockname()[1]
        return port


def _log(log: Path) -> Path:
    """One past 8 MiB is moved aside first; one older file is kept."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_name(f"{log.name}.1"))
    return log


async def _get(port: int, path: str) -> tuple[int, bytes] | None:
    """Status and body of a GET from a worker's side door; None when there is no whole answer within a second."""
    with suppress(OSError, TimeoutError, ValueError, IndexError):
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(LOCAL, port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                head, _, body = (await _read_all(reader)).partition(b"\r\n\r\n")
                return int(head.split(b" ", 2)[1]), body
            finally:
                writer.close()
    return None


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    chunks, size = [], 0
    while chunk := await reader.read(65_536):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise ValueError("more than a side door has to say")
    return b"".join(chunks)
