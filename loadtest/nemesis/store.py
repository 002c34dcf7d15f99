"""Valkey killed, frozen and flushed: it holds no truth, so nothing may depend on it."""

import asyncio
import signal

from redis.asyncio import Redis
from redis.exceptions import RedisError

from loadtest.nemesis.fault import Evidence, until_answer
from loadtest.nemesis.parts import Parts, send
from loadtest.nemesis.processes import kill as kill_process

ANSWER_S = 1.0
RETURN_S = 30.0


async def kill(parts: Parts) -> Evidence:
    """All it knew is gone with it; the plane starts an empty one."""
    evidence = await kill_process(parts, "valkey")
    back = await until_answer(lambda: _answers(parts), RETURN_S)
    return Evidence(f"{evidence.seen}, which answers PING") if evidence.seen and back else Evidence()


async def freeze(parts: Parts, for_s: float) -> Evidence:
    """It keeps what it knows, and answers nothing for a while."""
    pids = await parts.living("valkey")
    if not pids or not send(pid := pids[0], signal.SIGSTOP):
        return Evidence()
    try:
        silent = not await _answers(parts)
        await asyncio.sleep(for_s)
    finally:
        send(pid, signal.SIGCONT)
    back = await until_answer(lambda: _answers(parts), RETURN_S)
    return Evidence(f"pid {pid} did not answer PING, {for_s:g} s later it did") if silent and back else Evidence()


async def flush(parts: Parts) -> Evidence:
    """FLUSHALL: every claim and every note of a run that is over is forgotten."""
    async with _client(parts) as redis:
        held = await redis.dbsize()
        answered = await redis.flushall()
    return Evidence(f"FLUSHALL of {held} keys was answered") if answered else Evidence()


def _client(parts: Parts) -> Redis:
    return Redis.from_url(parts.endpoints().redis, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S)


async def _answers(parts: Parts) -> bool:
    try:
        async with asyncio.timeout(ANSWER_S), _client(parts) as redis:
            return bool(await redis.ping())
    except (RedisError, OSError, TimeoutError):
        return False
