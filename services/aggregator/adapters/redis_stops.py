"""Tells workers through Redis that a run is over. Best effort: a worker that misses it works in vain, no more."""

import asyncio

from redis.asyncio import Redis
from redis.exceptions import RedisError

from schemas.redis_keys import DEAD_RUN_TTL_S, DEAD_RUNS_CHANNEL, dead_run_key

MAX_WAITING = 10_000
MAX_BATCH = 200


class RedisRunStopper:
    """Collects run ids and tells of many at once."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)

    def stop_run(self, run_id: str) -> None:
        """Queues one; dropped when too many wait."""
        if not self._waiting.full():
            self._waiting.put_nowait(run_id)

    async def run(self) -> None:
        """A component: marks and announces runs as they end."""
        while True:
            run_ids = [await self._waiting.get()]
            while len(run_ids) < MAX_BATCH and not self._waiting.empty():
                run_ids.append(self._waiting.get_nowait())
            await self._tell(run_ids)

    async def _tell(self, run_ids: list[str]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for run_id in run_ids:
            pipeline.set(dead_run_key(run_id), "1", ex=DEAD_RUN_TTL_S)
        pipeline.publish(DEAD_RUNS_CHANNEL, " ".join(run_ids))
        try:
            async with asyncio.timeout(1.0):
                await pipeline.execute()
        except (RedisError, TimeoutError):
            return  # the workers' own deadlines bound what this would have saved
