"""One child process: spawned into its own group, logged to a file, awaited until ready, stopped within a grace."""

import asyncio
import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from headway.plane.child import tied
from headway.plane.errors import PlaneError
from headway.plane.reaper import Reaper, kill_group

MAX_LOG_BYTES = 8 * 1024 * 1024
POLL_S = 0.05


class ChildProcess:
    """A program that never outlives this process."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, reaper: Reaper | None) -> None:
        self._process = process
        self._reaper = reaper
        self._cleared = False
        self.log = log

    @classmethod
    async def spawn(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        reaper: Reaper | None = None,
        folder: Path | None = None,
    ) -> "ChildProcess":
        """Starts `argv` in a process group of its own, in `folder`, with its output appended to `log`."""
        output = _open_log(log)
        try:
            process = await asyncio.create_subprocess_exec(
                *tied(argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(env),
                cwd=folder,
                start_new_session=True,
            )
        finally:
            os.close(output)
        if reaper:
            reaper.watch(process.pid)
        return cls(process, log, reaper)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    async def until(self, ready: Callable[[], Awaitable[bool]], timeout_s: float) -> None:
        """Returns once `ready` says so. Else stops the program and raises a PlaneError with the tail of its log."""
        try:
            async with asyncio.timeout(timeout_s):
                while not await ready():
                    self._require_running()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            await self.stop(grace_s=1)
            raise PlaneError(f"it was not ready after {timeout_s:.0f} s{self._quote()}") from None
        except BaseException:
            await self.stop(grace_s=1)
            raise

    async def wait(self) -> int:
        """Returns the exit code (negative: the signal) once the program has ended; what it left behind is killed."""
        code = await self._process.wait()
        if not self._cleared:  # once: later the number may be another group's
            self._cleared = True
            kill_group(self.pid)
            if self._reaper:
                self._reaper.forget(self.pid)
        return code

    async def stop(self, grace_s: float) -> None:
        """SIGTERM to the program, then SIGKILL to its whole group after `grace_s` seconds."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), grace_s)
        except TimeoutError:
            kill_group(self.pid)
            await self.wait()

    def _require_running(self) -> None:
        if self.exit_code is not None:
            raise PlaneError(f"it ended with {describe_exit(self.exit_code)}{self._quote()}")

    def _quote(self) -> str:
        return f"; the end of {self.log}:\n{tail(self.log)}"


class Server(ABC):
    """A part of the plane: a program that can be started, awaited, stopped, and started again.

    Start it from the main thread: the program lives no longer than the thread that spawned it.
    """

    def __init__(self, name: str, log: Path, reaper: Reaper | None) -> None:
        self.name = name
        self.log = log
        self._reaper = reaper
        self._process: ChildProcess | None = None

    @abstractmethod
    async def start(self, on_progress: Callable[[str], None]) -> None:
        """Returns when it is ready to serve; raises PlaneError with the tail of its log when it will not be."""

    @property
    def pid(self) -> int:
        """The process id; 0 before the first start."""
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    async def wait(self) -> int:
        """The exit code (negative: the signal), once the program has ended."""
        assert self._process is not None, "wait() before start()"
        return await self._process.wait()

    async def stop(self, grace_s: float = 5.0) -> None:
        """SIGTERM, then SIGKILL after `grace_s` seconds; nothing happens if it does not run."""
        if self._process:
            await self._process.stop(grace_s)

    async def _spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        ready: Callable[[], Awaitable[bool]],
        timeout_s: float,
        folder: Path | None = None,
    ) -> None:
        self._process = await ChildProcess.spawn(argv, env, self.log, self._reaper, folder)
        try:
            await self._process.until(ready, timeout_s)
        except PlaneError as error:
            raise PlaneError(f"{self.name} did not start: {error}") from None


async def run_once(
    argv: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    *,
    timeout_s: float,
    reaper: Reaper | None = None,
    folder: Path | None = None,
) -> None:
    """Runs a program to its end; raises PlaneError with the tail of its log unless it exits 0 in time."""
    process = await ChildProcess.spawn(argv, env, log, reaper, folder)

    async def ended() -> bool:
        return process.exit_code == 0

    await process.until(ended, timeout_s)
    await process.wait()


def describe_exit(code: int) -> str:
    """An exit code as people read it: `exit code 1`, `SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    return ""


def _open_log(log: Path) -> int:
    """Opens a log to append; one past 8 MiB is moved aside first (a single older file is kept)."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_name(log.name + ".1"))
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
