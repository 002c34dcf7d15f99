"""Claims in Redis: one key a step, one script call a batch."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from schemas.redis_keys import claim_key, dead_run_key
from services.worker.domain.ports import LEASE_S, Answer, Claim, ClaimsUnavailable, Done, Verdict

_LEASE_MS = int(LEASE_S * 1_000)

# KEYS: n claim keys, then n dead-run keys. ARGV: owner, lease in ms, n attempts, n deadlines of their runs.
# Answers: -2 the run is over, -1 done or superseded, 0 ours, else milliseconds until the holder's lease ends.
_CLAIM = """
local answers, n = {}, #KEYS / 2
for i = 1, n do
  local attempt, holder = string.match(redis.call('GET', KEYS[i]) or '', '^(%d+) (.+)$')
  local held, mine = tonumber(attempt or 0), tonumber(ARGV[i + 2])
  if redis.call('GET', KEYS[n + i]) == ARGV[n + i + 2] then
    answers[i] = -2
  elseif held > mine or (held == mine and holder == 'done') then
    answers[i] = -1
  elseif held == mine and holder ~= ARGV[1] then
    answers[i] = math.max(redis.call('PTTL', KEYS[i]), 1)
  else
    redis.call('SET', KEYS[i], mine .. ' ' .. ARGV[1], 'PX', ARGV[2])
    answers[i] = 0
  end
end
return answers
"""

# KEYS and ARGV as above. Answers: 1 the run is over, 0 it goes on. A claim that vanished with the store comes back.
_RENEW = """
local answers, n = {}, #KEYS / 2
for i = 1, n do
  local mine = ARGV[i + 2] .. ' ' .. ARGV[1]
  if (redis.call('GET', KEYS[i]) or mine) == mine then
    redis.call('SET', KEYS[i], mine, 'PX', ARGV[2])
  end
  answers[i] = redis.call('GET', KEYS[n + i]) == ARGV[n + i + 2] and 1 or 0
end
return answers
"""

# KEYS: n claim keys. ARGV: n attempts, n times to keep in ms.
_FINISH = """
local n = #KEYS
for i = 1, n do
  local held = tonumber(string.match(redis.call('GET', KEYS[i]) or '', '^(%d+) ') or 0)
  if held <= tonumber(ARGV[i]) then
    redis.call('SET', KEYS[i], ARGV[i] .. ' done', 'PX', ARGV[n + i])
  end
end
"""

# KEYS: n claim keys. ARGV: owner, n attempts.
_RELEASE = """
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[i + 1] .. ' ' .. ARGV[1] then
    redis.call('DEL', KEYS[i])
  end
end
"""


class RedisClaimStore:
    """The claims of one worker process. `owner` has no spaces and is another one after every start."""

    def __init__(self, redis: Redis, owner: str) -> None:
        self._owner = owner
        self._claim = redis.register_script(_CLAIM)
        self._renew = redis.register_script(_RENEW)
        self._finish = redis.register_script(_FINISH)
        self._release = redis.register_script(_RELEASE)

    async def claim(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        async with _unavailable():
            answers = await self._claim(_claims_and_runs(claims), self._lease(claims))
        return [_answer(answer) for answer in answers]

    async def renew(self, claims: Sequence[Claim]) -> Sequence[bool]:
        async with _unavailable():
            answers = await self._renew(_claims_and_runs(claims), self._lease(claims))
        return [answer == 1 for answer in answers]

    async def finish(self, done: Sequence[Done]) -> None:
        args = [one.claim.attempt for one in done] + [max(1, int(one.keep_s * 1_000)) for one in done]
        async with _unavailable():
            await self._finish(_keys(one.claim for one in done), args)

    async def release(self, claims: Sequence[Claim]) -> None:
        async with _unavailable():
            await self._release(_keys(claims), [self._owner, *(claim.attempt for claim in claims)])

    def _lease(self, claims: Sequence[Claim]) -> list[Any]:
        return [
            self._owner,
            _LEASE_MS,
            *(claim.attempt for claim in claims),
            *(claim.deadline_at for claim in claims),
        ]


def _keys(claims: Iterable[Claim]) -> list[str]:
    return [claim_key(claim.run_id, claim.step, claim.deadline_at) for claim in claims]


def _claims_and_runs(claims: Sequence[Claim]) -> list[str]:
    return _keys(claims) + [dead_run_key(claim.run_id) for claim in claims]


def _answer(code: int) -> Answer:
    if code == 0:
        return Answer(Verdict.RUN)
    if code < 0:
        return Answer(Verdict.DEAD if code == -2 else Verdict.DONE)
    return Answer(Verdict.HELD, code / 1_000)


@asynccontextmanager
async def _unavailable() -> AsyncIterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        raise ClaimsUnavailable(str(error)) from error
