"""Tells workers through Redis that a run is over. Best effort: a worker that misses it works in vain, no more."""

import asyncio

from redis.asyncio import Redis
from redis.exceptions import RedisError

from schemas.base import LogTime
from schemas.redis_keys import DEAD_RUN_TTL_S, DEAD_RUNS_CHANNEL, EndedRun, dead_run_key, encode_ended_runs
from services.chassis.clock import LogClock

MAX_WAITING = 10_000
MAX_BATCH = 200
SLACK_MS = 10_000
"""Past the deadline, after which a task is dropped as expired."""
TIMEOUT_S = 1.0
TRIES = 2
"""The first may meet a connection that a restarted store has closed."""


class RedisRunStopper:
    """Collects runs that ended and tells of many at once."""

    def __init__(self, redis: Redis, clock: LogClock) -> None:
        self._redis = redis
        self._clock = clock
        self._waiting: asyncio.Queue[EndedRun] = asyncio.Queue(MAX_WAITING)

    def stop_run(self, run_id: str, deadline_at: LogTime) -> None:
        """Queues one; dropped when too many wait."""
        if not self._waiting.full():
            self._waiting.put_nowait(EndedRun(run_id, deadline_at))

    async def run(self) -> None:
        """A component: marks and announces runs as they end."""
        while True:
            runs = [await self._waiting.get()]
            while len(runs) < MAX_BATCH and not self._waiting.empty():
                runs.append(self._waiting.get_nowait())
            for _ in range(TRIES):  # after which the workers' own deadlines bound what this would have saved
                if await self._tell(runs):
                    break

    async def _tell(self, runs: list[EndedRun]) -> bool:
        pipeline = self._redis.pipeline(transaction=False)
        for run in runs:
            pipeline.set(dead_run_key(run.run_id), run.deadline_at, px=self._kept_ms(run))
        pipeline.publish(DEAD_RUNS_CHANNEL, encode_ended_runs(runs))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await pipeline.execute()
        except (RedisError, TimeoutError):
            return False
        return True

    def _kept_ms(self, run: EndedRun) -> int:
        left_ms = run.deadline_at - (self._clock.now_ms() or 0)
        return min(DEAD_RUN_TTL_S * 1_000, max(0, left_ms) + SLACK_MS)
