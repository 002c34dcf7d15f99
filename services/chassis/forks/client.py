"""The other end of a fork server: children by asking for them."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from services.chassis.app import DIE_WITH_PARENT
from services.chassis.forks.messages import NEWS, Ended, Fork, Forked, NotForked, Order, Signal, line
from services.chassis.logging import log

FORK_S = 30.0
"""For a fork; the first one waits for the imports, on a machine that may be starved."""
END_S = 2.0


class Child:
    """A forked process."""

    def __init__(self, pid: int, tell: Callable[[Signal], None]) -> None:
        self.pid = pid
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tell = tell

    def send(self, number: signal.Signals) -> None:
        """Nothing, if it has ended."""
        if not self.exit_code.done():
            self._tell(Signal(pid=self.pid, signal=number))

    async def wait(self) -> int:
        """Its exit code once it has ended; negative: the signal that ended it."""
        return await asyncio.shield(self.exit_code)


class ForkServer:
    """Forks children that run `main` of a module. A fork server that died, and its children with it, is replaced.

    Use it in the main thread: Linux kills a child with the thread that started it.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """`modules`: the first one's `main` is run; the others are imported, too, where they are installed."""
        self._modules = modules
        self._environment = {**environment, DIE_WITH_PARENT: str(os.getpid())}
        self._server: _Server | None = None
        self._one_at_a_time = asyncio.Lock()

    async def __aenter__(self) -> "ForkServer":
        """Begins with the imports, and does not wait for them."""
        async with self._one_at_a_time:
            await self._living()
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._one_at_a_time:
            if self._server is not None:
                await self._server.end()

    async def fork(self, order: Fork) -> Child:
        """Raises OSError when the machine cannot, or takes more than 30 s."""
        async with self._one_at_a_time:
            server = await self._living()
            try:
                async with asyncio.timeout(FORK_S):
                    return await server.fork(order)
            except (TimeoutError, asyncio.CancelledError):  # its answer would be taken for the next one's
                await server.end()
                raise

    async def _living(self) -> "_Server":
        if self._server is None or self._server.has_ended:
            self._server = await _Server.start(self._modules, self._environment)
        return self._server


class _Server:
    """One fork server, from its start to its end."""

    @classmethod
    async def start(cls, modules: Sequence[str], environment: Mapping[str, str]) -> "_Server":
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            command = (sys.executable, "-m", "services.chassis.forks.server", str(fd), *modules)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=asyncio.subprocess.DEVNULL, env=environment, pass_fds=(fd,)
                )
            except BaseException:
                ours.close()
                raise
        return cls(process, *await asyncio.open_connection(sock=ours))

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._writer = writer
        self._children: dict[int, Child] = {}
        self._answers: asyncio.Queue[Child | OSError] = asyncio.Queue()
        self._listening = asyncio.create_task(self._listen(reader))

    @property
    def has_ended(self) -> bool:
        return self._listening.done()

    def tell(self, order: Order) -> None:
        if not self._writer.is_closing():  # it is, before the end of the process is known; uvloop raises then
            self._writer.write(line(order))

    async def fork(self, order: Fork) -> Child:
        self.tell(order)
        answer = await self._answers.get()
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def end(self) -> None:
        """Its children are killed with it, if there are any left."""
        self._writer.close()
        try:
            async with asyncio.timeout(END_S):
                await asyncio.shield(self._listening)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._listening

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            async for text in reader:
                self._hear(text)
        except ConnectionError:  # it was killed
            pass
        finally:
            self._writer.close()
            code = await self._process.wait()
            if code:
                log.warning("fork_server_ended", exit_code=code, children=len(self._children))
            self._answers.put_nowait(OSError(f"the fork server has ended ({code})"))
            for pid in list(self._children):
                self._end(pid, -signal.SIGKILL)

    def _hear(self, text: bytes) -> None:
        match NEWS.validate_json(text):
            case Forked(forked=pid):
                self._children[pid] = child = Child(pid, self.tell)
                self._answers.put_nowait(child)
            case NotForked(not_forked=why):
                self._answers.put_nowait(OSError(why))
            case Ended(ended=pid, exit_code=code):
                self._end(pid, code)

    def _end(self, pid: int, code: int) -> None:
        self._children.pop(pid).exit_code.set_result(code)
