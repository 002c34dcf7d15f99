"""Text from a worker to whoever listens, by the real store."""

import asyncio
from uuid import uuid4

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from headway.cli.listening import listening
from headway.plane.ports import free_ports
from headway.text import pieces_of, run_id
from schemas.config import DEFAULT_TENANT
from schemas.redis_keys import text_channel
from schemas.text import TextPiece
from services.chassis.redis import connect
from services.chassis.settings import RedisSettings
from services.worker.adapters.redis_text import RedisTextChannel
from services.worker.domain.ports import TextLost


def piece(run: str, sequence: int, text: str) -> TextPiece:
    return TextPiece(run_id=run, step="phrase", attempt=1, sequence=sequence, text=text)


async def test_who_listens_to_a_run_hears_its_pieces_in_order_and_no_other_run(redis_url: str) -> None:
    mine, other = str(uuid4()), str(uuid4())
    said = [piece(mine, 0, "Grüß"), piece(other, 0, "psst"), piece(mine, 1, " dich\n")]
    redis = connect(RedisSettings(url=SecretStr(redis_url)))
    try:
        async with pieces_of(redis_url, mine) as pieces:
            await RedisTextChannel(redis).publish(said[:2])
            await redis.publish(text_channel(mine), "of a version to come")
            await RedisTextChannel(redis).publish(said[2:])
            async with asyncio.timeout(5):
                heard = [await anext(pieces), await anext(pieces)]
    finally:
        await redis.aclose()
    assert heard == [said[0], said[2]]


async def test_without_a_store_nothing_is_heard_and_what_is_said_is_lost() -> None:
    nowhere = f"redis://127.0.0.1:{free_ports(1)[0]}"
    async with pieces_of(nowhere, "run") as pieces:
        assert [piece async for piece in pieces] == []
    redis = connect(RedisSettings(url=SecretStr(nowhere)))
    with pytest.raises(TextLost):
        await RedisTextChannel(redis).publish([piece("run", 0, "hi")])
    await redis.aclose()


async def test_what_nobody_listens_to_is_kept_nowhere(redis_url: str) -> None:
    run = str(uuid4())
    redis = connect(RedisSettings(url=SecretStr(redis_url)))
    await RedisTextChannel(redis).publish([piece(run, 0, "hi")])
    await redis.aclose()
    plain = Redis.from_url(redis_url)
    assert await plain.keys(f"*{run}*") == []
    await plain.aclose()


async def test_the_command_line_prints_what_is_said_until_the_response_has_come(
    redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    request_id, printed = str(uuid4()), ""
    redis = connect(RedisSettings(url=SecretStr(redis_url)))
    async with listening(redis_url, request_id), asyncio.timeout(5):
        await RedisTextChannel(redis).publish([piece(run_id(DEFAULT_TENANT, request_id), 0, "Paris")])
        while not printed:
            await asyncio.sleep(0.01)
            printed += capsys.readouterr().err
    await redis.aclose()
    assert printed + capsys.readouterr().err == "Paris\n"
