"""The feed of runs that are over, on a real store."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from schemas.redis_keys import DEAD_RUNS_CHANNEL, EndedRun, encode_ended_runs
from services.worker.adapters import redis_dead_runs
from services.worker.adapters.redis_dead_runs import RedisDeadRuns

pytestmark = pytest.mark.kafka

FIRST, SECOND, THIRD = (EndedRun(f"run-{n}", 1_000 + n) for n in (1, 2, 3))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@asynccontextmanager
async def following(redis: Redis) -> AsyncIterator[list[EndedRun]]:
    """What is heard, from the moment somebody listens."""
    heard: list[EndedRun] = []

    async def follow() -> None:
        async for run in RedisDeadRuns(redis).follow():
            heard.append(run)  # noqa: PERF401  as it comes, not at the end

    task = asyncio.create_task(follow())
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def said(redis: Redis, *runs: EndedRun) -> None:
    """Publishes until a listener was there."""
    async with asyncio.timeout(5):
        while not await redis.publish(DEAD_RUNS_CHANNEL, encode_ended_runs(runs)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_runs_are_heard_as_they_end_several_at_once(redis_url: str) -> None:
    redis = Redis.from_url(redis_url, decode_responses=True)
    async with following(redis) as heard:
        await said(redis, FIRST)
        await said(redis, SECOND, THIRD)
        await until(lambda: heard == [FIRST, SECOND, THIRD])
    await redis.aclose()


async def test_a_lost_connection_is_made_again(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_dead_runs, "RECONNECT_S", 0.01)
    redis = Redis.from_url(redis_url)
    async with following(redis) as heard:
        await said(redis, FIRST)
        await redis.client_kill_filter(_type="pubsub")
        await until(lambda: heard == [FIRST])
        await said(redis, SECOND)
        await until(lambda: heard == [FIRST, SECOND])
    await redis.aclose()
