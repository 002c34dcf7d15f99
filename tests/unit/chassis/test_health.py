"""The side door answers three questions, and nobody can hold it open."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.chassis import health
from services.chassis.health import HealthServer, Readiness
from services.chassis.settings import SettingsError

SETTING = "HEADWAY_WORKER_METRICS_PORT"


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


async def exposition() -> bytes:
    return b"headway_up 1\n"


@pytest.fixture
async def door(readiness: Readiness) -> AsyncIterator[HealthServer]:
    async with HealthServer(readiness, exposition, "127.0.0.1", 0, SETTING) as server:
        yield server


async def ask(door: HealthServer, request: bytes) -> tuple[int | None, str]:
    """Status and body; None: cut off without an answer."""
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        try:
            writer.write(request)
            answer = (await reader.read()).decode()
        except ConnectionResetError:
            return None, ""
        finally:
            writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return (int(head.split()[1]) if head else None), body


async def get(door: HealthServer, path: str) -> tuple[int | None, str]:
    return await ask(door, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_a_process_that_answers_is_alive(door: HealthServer) -> None:
    assert await get(door, "/healthz") == (200, "ok\n")


async def test_it_is_not_ready_before_it_has_said_what_that_means(door: HealthServer) -> None:
    assert await get(door, "/readyz") == (503, "start: starting\n")


async def test_it_is_ready_when_every_check_holds_and_else_says_which_does_not(
    door: HealthServer, readiness: Readiness
) -> None:
    why: list[str | None] = ["no partition assigned"]
    readiness.add("kafka", lambda: why[-1])
    readiness.add("engine", lambda: None)
    assert await get(door, "/readyz") == (503, "kafka: no partition assigned\n")
    why.append(None)
    assert await get(door, "/readyz") == (200, "ok\n")


async def test_metrics_are_served_whatever_the_query(door: HealthServer) -> None:
    assert await get(door, "/metrics?name[]=x") == (200, "headway_up 1\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /admin HTTP/1.1\r\n\r\n", 404),
        (b"GET /../metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"\x00\xff\xfe\r\n\r\n", 405),
        (b"\r\n\r\n", 405),
        (b"GET\r\n\r\n", 404),
    ],
    ids=["unknown", "dots", "post", "garbage", "empty", "no-path"],
)
async def test_any_other_request_is_refused(door: HealthServer, request_bytes: bytes, status: int) -> None:
    assert (await ask(door, request_bytes))[0] == status


@pytest.mark.parametrize("part", [b"a", b"X: y\r\n"], ids=["long-line", "many-headers"])
async def test_an_oversize_request_is_cut_off(door: HealthServer, part: bytes) -> None:
    status, _ = await ask(door, b"GET / HTTP/1.1\r\n" + part * 100_000)
    assert status in (431, None)  # the reset for what was not read may overtake the answer


async def test_whoever_asks_too_slowly_is_dropped(door: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "REQUEST_TIMEOUT_S", 0.05)
    assert await ask(door, b"GET /healthz HTTP/1.1\r\n") == (None, "")


async def test_too_many_at_once_are_dropped_and_the_next_is_served(
    door: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MAX_CONNECTIONS", 1)
    _, holding = await asyncio.open_connection("127.0.0.1", door.port)
    async with asyncio.timeout(5):
        while (await get(door, "/healthz"))[0] is not None:  # until the held connection has been accepted
            pass
        holding.close()
        while (await get(door, "/healthz"))[0] != 200:
            pass


async def test_a_taken_port_is_an_error_that_names_the_setting(door: HealthServer, readiness: Readiness) -> None:
    with pytest.raises(SettingsError, match=f"127.0.0.1:{door.port} .*set {SETTING} to a free port"):
        async with HealthServer(readiness, exposition, "127.0.0.1", door.port, SETTING):
            pass
