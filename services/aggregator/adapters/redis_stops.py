"""Tells workers through Redis that a run is over. Best effort: a worker that misses it works in vain, no more."""

import asyncio
from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from schemas.base import LogTime
from schemas.redis_keys import DEAD_RUN_TTL_S, DEAD_RUNS_CHANNEL, EndedRun, dead_run_key, encode_ended_runs
from services.chassis.clock import LogClock

MAX_WAITING = 10_000
MAX_BATCH = 200
SLACK_MS = 10_000
"""Past the deadline, after which a task is dropped as expired."""
GATHER_S = 0.015
"""So long after the last message the next one waits for others, for every worker hears of every message."""
GIVE_WAY_S = 0.002
"""What a message waits at least: the record that says the same, for which the caller waits, goes first."""

# KEYS: n dead-run keys. ARGV: channel, message, n deadlines, n times to keep in ms.
_TELL = """
local n = #KEYS
for i = 1, n do
  redis.call('SET', KEYS[i], ARGV[i + 2], 'PX', ARGV[n + i + 2])
end
redis.call('PUBLISH', ARGV[1], ARGV[2])
"""


class RedisRunStopper:
    """Collects runs that ended and tells of many at once."""

    def __init__(self, redis: Redis, clock: LogClock) -> None:
        self._script = redis.register_script(_TELL)
        self._clock = clock
        self._waiting: asyncio.Queue[EndedRun] = asyncio.Queue(MAX_WAITING)

    def stop_run(self, run_id: str, deadline_at: LogTime) -> None:
        """Queues one; dropped when too many wait."""
        if not self._waiting.full():
            self._waiting.put_nowait(EndedRun(run_id, deadline_at))

    async def run(self) -> None:
        """A component: marks and announces runs as they end."""
        loop = asyncio.get_running_loop()
        told_s = loop.time()
        while True:
            runs = [await self._waiting.get()]
            await asyncio.sleep(max(GIVE_WAY_S, told_s + GATHER_S - loop.time()))
            while len(runs) < MAX_BATCH and not self._waiting.empty():
                runs.append(self._waiting.get_nowait())
            await self._tell(runs)
            told_s = loop.time()

    async def _tell(self, runs: list[EndedRun]) -> None:
        keys = [dead_run_key(run.run_id) for run in runs]
        deadlines, kept_ms = [run.deadline_at for run in runs], [self._kept_ms(run) for run in runs]
        # Where it fails, the workers' own deadlines bound what it would have saved.
        with suppress(RedisError):
            await self._script(keys, [DEAD_RUNS_CHANNEL, encode_ended_runs(runs), *deadlines, *kept_ms])

    def _kept_ms(self, run: EndedRun) -> int:
        left_ms = run.deadline_at - (self._clock.now_ms() or 0)
        return min(DEAD_RUN_TTL_S * 1_000, max(0, left_ms) + SLACK_MS)
