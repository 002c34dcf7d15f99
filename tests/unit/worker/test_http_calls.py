"""How engines call servers over HTTP: on connections that are kept, and that servers close when they please."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.worker.domain.engine import EngineFailed, EngineUnavailable
from services.worker.engines.http_calls import HttpCalls
from tests.scripted_server import ScriptedServer, scripted_server

MAX = 1_000


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@asynccontextmanager
async def calls_of(server: ScriptedServer, *, keeps_connections: bool = True) -> AsyncIterator[HttpCalls]:
    url = f"http://127.0.0.1:{server.port}/run?key=secret"
    calls = HttpCalls(
        url, {"X-Token": "t"}, max_answer_bytes=MAX, by_proxy=False, keeps_connections=keeps_connections
    )
    yield calls
    await calls.close()


async def test_a_connection_is_used_again(server: ScriptedServer) -> None:
    async with calls_of(server) as calls:
        for _ in range(3):
            assert (await calls.send(b"1")).status == 200
    assert (len(server.asked), server.connections) == (3, 1)


async def test_where_none_is_kept_every_call_has_its_own(server: ScriptedServer) -> None:
    async with calls_of(server, keeps_connections=False) as calls:
        for _ in range(3):
            await calls.send(b"1")
    assert server.connections == 3


async def test_a_kept_connection_that_is_closed_on_its_next_call_costs_no_call(server: ScriptedServer) -> None:
    """As a server does that closes idle connections just when the next call comes."""
    server.closes_after = 1
    async with calls_of(server) as calls:
        answers = [await calls.send(b"1") for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3
    assert (len(server.asked), server.connections) == (3, 3)


async def test_a_new_connection_that_is_closed_is_not_tried_again(server: ScriptedServer) -> None:
    """The call itself may be what the server dies of."""
    server.closes_after = 0
    async with calls_of(server) as calls:
        with pytest.raises(EngineUnavailable, match=r"RemoteProtocolError at http://127\.0\.0\.1:\d+/run$"):
            await calls.send(b"1")
    assert server.connections == 1


async def test_an_answer_that_breaks_off_is_not_asked_for_again(server: ScriptedServer) -> None:
    async with calls_of(server) as calls:
        await calls.send(b"1")
        server.headers, server.breaks_off = {"Content-Length": "9"}, True
        with pytest.raises(EngineUnavailable):
            await calls.send(b"1")
    assert len(server.asked) == 2


async def test_an_answer_of_just_the_bound_is_read_and_a_larger_one_cut_off(server: ScriptedServer) -> None:
    async with calls_of(server) as calls:
        server.body = b"x" * MAX
        assert (await calls.send(b"1")).content == server.body
        server.body = b"x" * (MAX + 1)
        with pytest.raises(EngineFailed, match="larger than 1000 bytes") as caught:
            await calls.send(b"1")
    assert not caught.value.retryable


async def test_a_call_carries_its_method_its_body_and_both_kinds_of_header(server: ScriptedServer) -> None:
    async with calls_of(server) as calls:
        await calls.send(b'{"a": 1}', method="PUT", headers={"Idempotency-Key": "r/s"})
    (asked,) = server.asked
    assert asked.line == "PUT /run?key=secret HTTP/1.1"
    assert asked.body == b'{"a": 1}'
    wanted = {
        "x-token": "t",
        "idempotency-key": "r/s",
        "content-type": "application/json",
        "accept-encoding": "identity",
    }
    assert asked.headers.items() >= wanted.items()


@pytest.mark.parametrize(("status", "heard"), [(200, b"words"), (503, b"")])
async def test_only_a_good_answer_is_heard_as_it_comes(server: ScriptedServer, status: int, heard: bytes) -> None:
    server.status, server.body = status, b"words"
    data: list[bytes] = []
    async with calls_of(server) as calls:
        answer = await calls.send(b"{}", on_data=data.append)
    assert (answer.status, answer.content, b"".join(data)) == (status, b"words", heard)
