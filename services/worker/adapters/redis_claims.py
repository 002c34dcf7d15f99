"""Claims in Redis: one key a step, one script call a batch."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from schemas.redis_keys import claim_key, dead_run_key
from services.worker.domain.ports import DEATHS, LEASE_S, MEMORY_S, Answer, Claim, ClaimsUnavailable, Done, Verdict

_LEASE_MS, _MEMORY_MS = int(LEASE_S * 1_000), int(MEMORY_S * 1_000)

# A claim outlives its lease, so that the next holder knows that the last one died: its time to live is the lease and
# the memory, and the lease lasts while more than the memory is left.

# KEYS: n claim keys, then n dead-run keys. ARGV: owner, lease and memory in ms, deaths that make a suspect,
# n attempts, n deadlines of their runs.
# Answers, in one text, which is read faster than an array: -4 to be put aside, -3 ours to run alone, -2 the run is
# over, -1 done or superseded, 0 ours, else milliseconds until the holder's lease ends.
_CLAIM = """
local answers, n = {}, #KEYS / 2
local owner, memory = ARGV[1], tonumber(ARGV[3])
for i = 1, n do
  local attempt, holder, past = string.match(redis.call('GET', KEYS[i]) or '', '^(%d+) (%S+) ?(%S*)$')
  local held, mine = tonumber(attempt or 0), tonumber(ARGV[i + 4])
  local another = held == mine and holder ~= owner and holder ~= '-'
  local left = another and holder ~= 'done' and redis.call('PTTL', KEYS[i]) - memory or 0
  if redis.call('GET', KEYS[n + i]) == ARGV[n + i + 4] then
    answers[i] = -2
  elseif held > mine or (held == mine and holder == 'done') then
    answers[i] = -1
  elseif left > 0 then
    answers[i] = left
  else
    if held ~= mine then
      past = 0
    elseif past ~= 'alone' then
      past = (tonumber(past) or 0) + (another and 1 or 0)
    end
    redis.call('SET', KEYS[i], mine .. ' ' .. owner .. ' ' .. past, 'PX', ARGV[2] + memory)
    if past == 'alone' then
      answers[i] = another and -4 or -3
    else
      answers[i] = past >= tonumber(ARGV[4]) and -3 or 0
    end
  end
end
return table.concat(answers, ' ')
"""

# KEYS and ARGV as above. Answers, in an array: 1 the run is over, 0 it goes on. A claim that vanished with the store
# comes back.
_RENEW = """
local answers, n = {}, #KEYS / 2
local keep = ARGV[2] + ARGV[3]
for i = 1, n do
  local mine = ARGV[i + 4] .. ' ' .. ARGV[1] .. ' '
  local value = redis.call('GET', KEYS[i])
  if not value then
    redis.call('SET', KEYS[i], mine .. '0', 'PX', keep)
  elseif string.sub(value, 1, #mine) == mine then
    redis.call('PEXPIRE', KEYS[i], keep)
  end
  answers[i] = redis.call('GET', KEYS[n + i]) == ARGV[n + i + 4] and 1 or 0
end
return answers
"""

# KEYS: a claim key. ARGV: owner, attempt, lease and memory together in ms. Answers: 1, or 0 when it is another's.
_ISOLATE = """
local mine = ARGV[2] .. ' ' .. ARGV[1] .. ' '
if string.sub(redis.call('GET', KEYS[1]) or mine, 1, #mine) ~= mine then
  return 0
end
redis.call('SET', KEYS[1], mine .. 'alone', 'PX', ARGV[3])
return 1
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

# KEYS: n claim keys. ARGV: owner, memory in ms, deaths that make a suspect, n attempts.
_RELEASE = """
for i = 1, #KEYS do
  local mine = ARGV[i + 3] .. ' ' .. ARGV[1] .. ' '
  local value = redis.call('GET', KEYS[i]) or ''
  if string.sub(value, 1, #mine) == mine then
    local past = string.sub(value, #mine + 1)
    redis.call('SET', KEYS[i], ARGV[i + 3] .. ' - ' .. (past == 'alone' and ARGV[3] or past), 'PX', ARGV[2])
  end
end
"""


_VERDICTS = {0: Verdict.RUN, -1: Verdict.DONE, -2: Verdict.DEAD, -3: Verdict.ALONE, -4: Verdict.POISON}


class RedisClaimStore:
    """The claims of one worker process. `owner` has no spaces and is another one after every start."""

    def __init__(self, redis: Redis, owner: str) -> None:
        self._owner = owner
        self._claim = redis.register_script(_CLAIM)
        self._renew = redis.register_script(_RENEW)
        self._isolate = redis.register_script(_ISOLATE)
        self._finish = redis.register_script(_FINISH)
        self._release = redis.register_script(_RELEASE)

    async def claim(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        async with _unavailable():
            answers = await self._claim(_claims_and_runs(claims), self._lease(claims))
        return [_answer(int(answer)) for answer in answers.split()]

    async def renew(self, claims: Sequence[Claim]) -> Sequence[bool]:
        async with _unavailable():
            answers = await self._renew(_claims_and_runs(claims), self._lease(claims))
        return [answer == 1 for answer in answers]

    async def isolate(self, claim: Claim) -> bool:
        args: list[Any] = [self._owner, claim.attempt, _LEASE_MS + _MEMORY_MS]
        async with _unavailable():
            return bool(await self._isolate(_keys([claim]), args))

    async def finish(self, done: Sequence[Done]) -> None:
        args = [one.claim.attempt for one in done] + [max(1, int(one.keep_s * 1_000)) for one in done]
        async with _unavailable():
            await self._finish(_keys(one.claim for one in done), args)

    async def release(self, claims: Sequence[Claim]) -> None:
        args: list[Any] = [self._owner, _MEMORY_MS, DEATHS, *(claim.attempt for claim in claims)]
        async with _unavailable():
            await self._release(_keys(claims), args)

    def _lease(self, claims: Sequence[Claim]) -> list[Any]:
        attempts, lives = (claim.attempt for claim in claims), (claim.deadline_at for claim in claims)
        return [self._owner, _LEASE_MS, _MEMORY_MS, DEATHS, *attempts, *lives]


def _keys(claims: Iterable[Claim]) -> list[str]:
    return [claim_key(claim.run_id, claim.step, claim.deadline_at) for claim in claims]


def _claims_and_runs(claims: Sequence[Claim]) -> list[str]:
    return _keys(claims) + [dead_run_key(claim.run_id) for claim in claims]


def _answer(code: int) -> Answer:
    return Answer(Verdict.HELD, code / 1_000) if code > 0 else Answer(_VERDICTS[code])


@asynccontextmanager
async def _unavailable() -> AsyncIterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        raise ClaimsUnavailable(str(error)) from error
