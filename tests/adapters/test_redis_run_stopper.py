"""The announcements of runs that are over, on a real store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from schemas.redis_keys import DEAD_RUNS_CHANNEL, EndedRun, dead_run_key, decode_ended_runs
from services.aggregator.adapters.redis_stops import RedisRunStopper
from services.chassis.clock import LogClock
from services.chassis.redis import connect
from services.chassis.settings import RedisSettings

pytestmark = pytest.mark.kafka

NOW_MS = 1_700_000_000_000
SOON, LATER = EndedRun("run-soon", NOW_MS + 5_000), EndedRun("run-later", NOW_MS + 86_400_000)


@asynccontextmanager
async def listener(redis: Redis) -> AsyncIterator[AsyncIterator[list[EndedRun]]]:
    """The messages from now on."""
    async with redis.pubsub() as channel:
        await channel.subscribe(DEAD_RUNS_CHANNEL)
        messages = aiter(channel.listen())
        await anext(messages)  # subscribed
        yield (decode_ended_runs(message["data"]) async for message in messages)


@asynccontextmanager
async def stopping(redis: Redis) -> AsyncIterator[RedisRunStopper]:
    clock = LogClock()
    clock.observe(NOW_MS)
    stopper = RedisRunStopper(redis, clock)
    task = asyncio.create_task(stopper.run())
    try:
        yield stopper
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_runs_that_end_together_are_told_in_one_message_and_remembered(redis_url: str) -> None:
    async with (
        asyncio.timeout(5),
        connect(RedisSettings(url=SecretStr(redis_url))) as redis,
        listener(redis) as heard,
        stopping(redis) as stopper,
    ):
        stopper.stop_run(*SOON)
        stopper.stop_run(*LATER)
        assert await anext(heard) == [SOON, LATER]
        assert await redis.mget(map(dead_run_key, (SOON.run_id, LATER.run_id))) == [
            str(SOON.deadline_at),
            str(LATER.deadline_at),
        ]
        assert 10_000 < await redis.pttl(dead_run_key(SOON.run_id)) <= 15_000
        assert 3_590_000 < await redis.pttl(dead_run_key(LATER.run_id)) <= 3_600_000


async def test_a_store_that_forgot_everything_is_told_all_the_same(redis_url: str) -> None:
    async with (
        asyncio.timeout(5),
        connect(RedisSettings(url=SecretStr(redis_url))) as redis,
        listener(redis) as heard,
        stopping(redis) as stopper,
    ):
        stopper.stop_run(*SOON)
        assert await anext(heard) == [SOON]
        await redis.script_flush()
        await redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")  # type: ignore[no-untyped-call]
        stopper.stop_run(*LATER)
        assert await anext(heard) == [LATER]
