"""The service's side door: `/healthz`, `/readyz` and `/metrics` on one port.

A few lines of HTTP/1.1 instead of a framework: a GET without a body, one answer, connection closed. Everything is
bounded, because whatever can reach the port can send anything.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from types import TracebackType
from typing import NamedTuple, Self

from services.chassis.settings import SettingsError

MAX_HEAD_BYTES = 8_192
MAX_CONNECTIONS = 64
REQUEST_TIMEOUT_S = 5.0

Check = Callable[[], str | None]
"""None when it holds, else why not, in a few words."""

ASLEEP = "asleep"
"""What a check says of a part that is well, but rests: whoever it rests for knows it by this word."""

TEXT = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Readiness:
    """The named conditions under which this process does its work; none named yet means that it is still starting.

    Add them all before the first part starts.
    """

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Ready only while `check` returns None."""
        self._checks[name] = check

    def missing(self) -> dict[str, str]:
        """What is not ready, and why; empty when all is."""
        if not self._checks:
            return {"start": "starting"}
        found = ((name, check()) for name, check in self._checks.items())
        return {name: why for name, why in found if why is not None}


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = TEXT

    def encode(self) -> bytes:
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + self.body


class HealthServer:
    """Serves the three routes for as long as it is entered (`async with`)."""

    def __init__(
        self, readiness: Readiness, exposition: Callable[[], Awaitable[bytes]], host: str, port: int, setting: str
    ) -> None:
        """`setting`: the variable to name when the port is taken, which is a SettingsError."""
        self._readiness = readiness
        self._exposition = exposition
        self._host, self._port, self._setting = host, port, setting
        self._server: asyncio.Server | None = None
        self._connections = 0

    @property
    def port(self) -> int:
        """Where it listens, also when it was asked for any free port."""
        assert self._server is not None, "not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            raise SettingsError(
                f"cannot listen on {self._host}:{self._port} ({error.strerror}): set {self._setting} to a free port"
            ) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    writer.write((await self._answer(reader)).encode())
                    await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # whoever asked is slow or gone; there is nobody to tell
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> _Answer:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"the request's head is too large\n")
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        if method != b"GET":
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"GET only\n")
        return await self._get(rest.split(b" ")[0].split(b"?")[0])

    async def _get(self, path: bytes) -> _Answer:
        if path == b"/metrics":
            return _Answer(HTTPStatus.OK, await self._exposition(), PROMETHEUS)
        if path == b"/healthz":
            return _Answer(HTTPStatus.OK, b"ok\n")
        if path == b"/readyz":
            missing = self._readiness.missing()
            lines = "".join(f"{name}: {why}\n" for name, why in missing.items())
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK, lines.encode() or b"ok\n")
        return _Answer(HTTPStatus.NOT_FOUND, b"/healthz /readyz /metrics\n")
