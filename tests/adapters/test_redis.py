"""The store holds no truth: whatever happens to it, a call takes a second at most, and the next ones less."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from services.chassis import redis as chassis
from services.chassis.redis import connect
from services.chassis.settings import RedisSettings, SettingsError

CALL_TIMEOUT_S = 0.2


class Monotonic:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chassis, "CALL_TIMEOUT_S", CALL_TIMEOUT_S)


class Frozen:
    """Accepts connections and never says a word; `connections` counts them."""

    def __init__(self) -> None:
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await reader.read()
        finally:
            writer.close()


@pytest.fixture
async def frozen() -> AsyncIterator[tuple[Frozen, str]]:
    server = Frozen()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    yield server, f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    listening.close()
    await listening.wait_closed()


def client(url: str, monotonic: Monotonic | None = None) -> Redis:
    return connect(RedisSettings(url=SecretStr(url)), monotonic or Monotonic())


async def test_it_answers_in_text(redis_url: str) -> None:
    async with client(redis_url) as redis:
        await redis.set("chassis:greeting", "grüß dich", px=60_000)
        assert await redis.get("chassis:greeting") == "grüß dich"


async def test_a_store_that_is_frozen_costs_one_call_its_time_and_the_next_ones_nothing(
    frozen: tuple[Frozen, str],
) -> None:
    server, url = frozen
    async with client(url, monotonic := Monotonic()) as redis:
        began = time.monotonic()
        with pytest.raises(RedisError):
            await redis.get("k")
        assert time.monotonic() - began < 4 * CALL_TIMEOUT_S
        tried = server.connections
        for _ in range(100):
            with pytest.raises(RedisError, match="a moment ago"):
                await redis.get("k")
        assert server.connections == tried
        monotonic.now_s += chassis.REST_S
        with pytest.raises(RedisError):
            await redis.get("k")
        assert server.connections > tried


async def test_a_store_that_is_not_there_is_an_error_at_once() -> None:
    async with client("redis://127.0.0.1:1") as redis:
        with pytest.raises(RedisError):
            await redis.get("k")


async def test_after_a_restart_of_the_store_the_first_call_succeeds(redis_url: str) -> None:
    async with client(redis_url) as redis, client(redis_url) as operator:
        await redis.set("chassis:k", "v", px=60_000)
        await operator.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]
        assert await redis.get("chassis:k") == "v"


async def test_a_refused_command_does_not_mean_that_the_store_is_away(redis_url: str) -> None:
    async with client(redis_url) as redis:
        with pytest.raises(ResponseError):
            await redis.execute_command("NO-SUCH-COMMAND")  # type: ignore[no-untyped-call]
        assert await redis.ping()


async def test_a_quiet_subscription_stays(redis_url: str) -> None:
    async with client(redis_url) as redis, redis.pubsub(ignore_subscribe_messages=True) as channel:
        await channel.subscribe("chassis:quiet")
        heard = asyncio.create_task(anext(aiter(channel.listen())))
        done, _ = await asyncio.wait({heard}, timeout=3 * CALL_TIMEOUT_S)
        assert not done
        await redis.publish("chassis:quiet", "hello")
        async with asyncio.timeout(5):
            assert (await heard)["data"] == "hello"


def test_an_address_with_an_option_that_means_nothing_names_the_setting() -> None:
    with pytest.raises(SettingsError, match="HEADWAY_REDIS_URL: what follows"):
        client("redis://x?socket_timeout=soon")
