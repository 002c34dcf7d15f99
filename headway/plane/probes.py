"""Is it up? One small exchange over TCP for each kind of server, without a client library."""

import asyncio
import contextlib
import struct

from headway.plane.ports import HOST

PROBE_TIMEOUT_S = 2.0

# ApiVersions v0, correlation id 1, no client id: the one request every Kafka broker answers, and only once it serves.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


async def valkey_answers(port: int) -> bool:
    return await _exchange(port, b"PING\r\n", 5) == b"+PONG"


async def kafka_answers(port: int) -> bool:
    answer = await _exchange(port, _API_VERSIONS, 10)  # length, correlation id, error code
    return answer[4:10] == struct.pack(">ih", 1, 0)


async def is_ready(metrics_port: int) -> bool:
    """Does a service's `/readyz` answer 200?"""
    answer = await _exchange(
        metrics_port, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 12
    )
    return answer[8:] == b" 200"


async def _exchange(port: int, request: bytes, answer_size: int) -> bytes:
    """Sends a request and returns the first bytes of the answer; b"" when there is none."""
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(request)
                return await reader.readexactly(answer_size)
            finally:
                writer.close()
    return b""
