"""An upgrade under load: every service in turn is stopped in order (SIGTERM) and waited for, again and again.

Promised: no request fails, and each has exactly one response.
"""

import asyncio
import math
import signal
from dataclasses import dataclass
from typing import Any

from loadtest.context import Context, broken
from loadtest.ledger import following, latencies_ms
from loadtest.nemesis.fault import now_ms, until
from loadtest.nemesis.parts import Parts, send
from loadtest.steady import rate_per_s, steady

RUNS = 2_000
DEADLINE_S = 30.0
ORDER = ("aggregator", "orchestrator", "host")
"""As an upgrade goes: whoever reads the log first learns to read what the others will write."""
BETWEEN_S = 2.0
RETURN_S = 60.0


@dataclass(frozen=True, slots=True)
class Restart:
    """One part, from the signal until its successor was ready; by the machine's clock, which is the broker's."""

    part: str
    began_ms: int
    ready_ms: int


async def run(context: Context) -> dict[str, Any]:
    """Keys: `restarts`, `restart_ms` by part, `latency_ms` of all, `during_restarts_ms`, and the ledger's."""
    return await roll(context, RUNS)


async def roll(context: Context, runs: int, rounds: float = math.inf) -> dict[str, Any]:
    """Restarts every service for as long as so many runs take to come, but no more than so many times."""
    duration_s = runs / rate_per_s(context)
    async with following(context.endpoints.kafka, DEADLINE_S) as ledger:
        restarts = await steady(
            context, ledger, duration_s, DEADLINE_S, lambda: _restarts(context, duration_s, rounds)
        )
    verdict = ledger.verdict()
    met = [e for e in ledger.entries if any(e.overlaps(r.began_ms, r.ready_ms) for r in restarts)]
    return {
        **verdict,
        "rate_per_s": rate_per_s(context),
        "restarts": len(restarts),
        "restart_ms": {part: _slowest_ms(restarts, part) for part in {restart.part for restart in restarts}},
        "during_restarts_ms": latencies_ms(met) | {"runs": len(met)},
        **broken(
            nothing_fails=verdict["failed"] == 0,
            nothing_lost=verdict["lost"] == 0,
            one_response=verdict["conflicting"] == verdict["repeated"] == 0,
        ),
    }


async def _restarts(context: Context, duration_s: float, rounds: float) -> list[Restart]:
    """Whole rounds, the first of them in any case, until the time is over."""
    parts, loop = Parts(context.home), asyncio.get_running_loop()
    order = [instance for service in ORDER for instance in parts.instances(service)]
    made: list[Restart] = []
    over_at = loop.time() + duration_s
    while not made or (loop.time() < over_at and len(made) < rounds * len(order)):
        for part in order:
            await asyncio.sleep(BETWEEN_S)
            made.append(await restart(parts, part))
            context.say(f"rolling: {part} was back after {made[-1].ready_ms - made[-1].began_ms} ms")
    return made


async def restart(parts: Parts, part: str) -> Restart:
    """SIGTERM; the plane starts the part again, and names its process once it is ready. TimeoutError after 60 s."""
    before, began_ms = parts.pid(part), now_ms()
    send(before, signal.SIGTERM)
    if not await until(lambda: parts.pid(part) not in (0, before), RETURN_S):
        raise TimeoutError(f"{part} was not ready again {RETURN_S:.0f} s after SIGTERM")
    return Restart(part, began_ms, now_ms())


def _slowest_ms(restarts: list[Restart], part: str) -> int:
    return max(restart.ready_ms - restart.began_ms for restart in restarts if restart.part == part)
