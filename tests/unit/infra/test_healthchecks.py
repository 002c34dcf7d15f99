"""What containers ask themselves: a service that progresses is healthy, a port that merely listens is not."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.unit.infra.composed import ROOT

READY = (sys.executable, "-I", "-S", str(ROOT / "infra/images/ready.py"))
ANSWERS = ("bash", str(ROOT / "infra/kafka/answers.sh"))
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


@asynccontextmanager
async def door(asked: bytes, answer: bytes) -> AsyncIterator[str]:
    """The port of a server that answers what it is asked, once it was asked for `asked`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(asked)) == asked
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield str(server.sockets[0].getsockname()[1])


async def run(*command: str) -> tuple[int | None, str]:
    """Exit code and output."""
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def ready(answer: str) -> tuple[int | None, str]:
    async with door(b"GET /readyz HTTP/1.1\r\n", answer.encode()) as port:
        return await run(*READY, "1", port)


async def broker(answer: bytes) -> int | None:
    async with door(API_VERSIONS, answer) as port:
        return (await run(*ANSWERS, port))[0]


async def test_a_service_that_progresses_is_healthy() -> None:
    assert await ready("HTTP/1.1 200 OK\r\n\r\nok\n") == (0, "ok\n")


async def test_a_service_that_does_not_progress_says_why() -> None:
    answer = "HTTP/1.1 503 Service Unavailable\r\n\r\ndispatch: no partitions\n"
    assert await ready(answer) == (1, "dispatch: no partitions\n")


async def test_a_container_in_which_nothing_listens_yet_is_not_healthy() -> None:
    assert await run(*READY, "1") == (1, "nothing listens yet\n")


async def test_a_broker_that_serves_is_healthy() -> None:
    assert await broker(bytes.fromhex("00000010 00000001 0000 00000001 0012")) == 0


async def test_a_broker_that_refuses_or_falls_silent_or_is_none_is_not_healthy() -> None:
    assert await broker(bytes.fromhex("00000010 00000001 0023 00000001 0012"))
    assert await broker(b"")
    assert await broker(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert (await run(*ANSWERS, "1"))[0]
