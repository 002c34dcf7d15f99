"""An HTTP server that says what a test tells it to, and remembers what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Asked:
    """One request."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        """The body."""
        value: dict[str, object] = json.loads(self.body)
        return value


class Reply(NamedTuple):
    """A status and a body."""

    status: int
    body: bytes


@dataclass
class ScriptedServer:
    """Answers every request with `status`, `headers` and `body`, until it is told otherwise."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    hangs: bool = False
    reply: Callable[[Asked], Reply | None] | None = None
    """Where there is one, it says how to answer; None is not at all."""
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared, no answer is begun."""
    closes_after: int = 1_000_000
    """Requests on one connection that are answered; at the next one it is closed without a word."""
    breaks_off: bool = False
    """The connection is closed after the answer, which may be shorter than its headers say."""
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    working: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set, repr=False)
    _listening: asyncio.Server | None = field(default=None, repr=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side closes it."""
        self.connections += 1
        self._writers.add(writer)
        try:
            for number in range(self.closes_after + 1):
                asked = await _request(reader)
                if asked is None or number == self.closes_after:
                    break
                await self._answer(asked, reader, writer)
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(asked)
        self.working += 1
        try:
            await self.answers.wait()
            reply = self._reply(asked)
            if reply is None:
                self.came.set()
                await reader.read()  # returns when the client has left
                self.left.set()
                raise ConnectionResetError
            said = {"Content-Length": str(len(reply.body))} | self.headers
            lines = [f"HTTP/1.1 {reply.status} Said", *(f"{name}: {value}" for name, value in said.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + reply.body)
            await writer.drain()
            if self.breaks_off:
                raise ConnectionResetError
        finally:
            self.working -= 1

    def _reply(self, asked: Asked) -> Reply | None:
        if self.reply is not None:
            return self.reply(asked)
        return None if self.hangs else Reply(self.status, self.body)

    async def open(self) -> None:
        """Listens; where it listened before, if it did."""
        self._listening = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Ends every connection, and takes no more."""
        assert self._listening is not None
        self._listening.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._listening.wait_closed()


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    except asyncio.IncompleteReadError:
        return None
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
    return Asked(head[0], headers, await reader.readexactly(int(headers.get("content-length", 0))))


@asynccontextmanager
async def scripted_server(body: bytes = b"{}") -> AsyncIterator[ScriptedServer]:
    """One on a free port of this host."""
    server = ScriptedServer(body=body)
    server.answers.set()
    await server.open()
    try:
        yield server
    finally:
        await server.close()
