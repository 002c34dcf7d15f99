"""Runs that are over, from Redis pub/sub."""

import asyncio
from collections.abc import AsyncIterator

from redis.asyncio import Redis
from redis.exceptions import RedisError

from schemas.redis_keys import DEAD_RUNS_CHANNEL, EndedRun, decode_ended_runs

RECONNECT_S = 1.0


class RedisDeadRuns:
    """Listens for as long as it is iterated; what is said while the connection is away is lost."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def follow(self) -> AsyncIterator[EndedRun]:
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(DEAD_RUNS_CHANNEL)
                    async for message in channel.listen():
                        for run in decode_ended_runs(_text(message["data"])):
                            yield run
            except (RedisError, OSError):
                await asyncio.sleep(RECONNECT_S)


def _text(data: bytes | str) -> str:
    """Whatever the client decodes; bytes that are no text name no run."""
    return data.decode(errors="replace") if isinstance(data, bytes) else data
