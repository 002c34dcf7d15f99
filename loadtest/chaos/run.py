"""One chaos run on a plane that is up: load and faults together, the settling, and the reading of the log."""

import asyncio
import json
import random
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtest.chaos.campaign import Campaign
from loadtest.chaos.clients import Clients, Plan
from loadtest.chaos.history import Entry, History
from loadtest.chaos.kinds import HEAVY, KINDS, Field
from loadtest.chaos.reader import ResponseFollower, read_all
from loadtest.chaos.schedule import schedule
from loadtest.chaos.seen import Seen
from loadtest.chaos.weather import Weather
from loadtest.nemesis.fault import Strike, until
from loadtest.nemesis.parts import Parts
from loadtest.nemesis.rubbish import Rubbish, producer
from schemas import ids
from schemas.config import DEFAULT_TENANT

HISTORY, STRIKES = "chaos/history.jsonl", "chaos/strikes.jsonl"
"""In the home."""
SHARE = 0.9
"""Of the load's time, in which faults begin: those that touch requests need some to come."""
HEALING_S = 600.0
"""Past twice the load's time: a plane whose broker is gone for good would never acknowledge anything."""
SETTLE_S = 100.0
"""After the last fault: the longest deadline, its 15 s, and the way through the queues."""
QUIET_S = 3.0
"""Between the last response and the reading: a second copy would come now."""
HEALED_WITHIN_S = 60.0
RECENT = 400
"""Forgeries are of runs that were asked for lately, some of them open and some over."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run left for the checker."""

    entries: list[Entry]
    strikes: list[Strike]
    seen: Seen
    healed: bool
    """Every part of the plane was ready again at the end."""


async def ordeal(
    home: Path, plan: Plan, faults: int, say: Callable[[str], None], kinds: Collection[str] = tuple(KINDS)
) -> Ran:
    """Requests under faults, until every request is answered or had all the time it may take."""
    parts, weather = Parts(home), Weather()
    bootstrap = parts.endpoints().kafka
    history = History(home / HISTORY)
    async with Clients(bootstrap, plan, weather, history) as clients, producer(bootstrap) as writer:
        field = Field(parts, weather, Rubbish(writer), lambda rng: _some_run(plan, history, rng))
        campaign = Campaign(KINDS, field, plan.seed, say)
        duration_s = SHARE * plan.requests / plan.rate_per_s
        weights = {name: KINDS[name].weight for name in KINDS if name in kinds}
        async with asyncio.timeout(2 * duration_s + HEALING_S), asyncio.TaskGroup() as group:
            group.create_task(clients.run())
            group.create_task(campaign.run(schedule(faults, plan.seed, duration_s, weights, HEAVY)))
    history.close()
    write_strikes(home / STRIKES, campaign.strikes)
    say("chaos: all is healed; waiting for what is still open")
    await _settle(bootstrap, history.entries)
    healed = await until(lambda: parts.endpoints().ready, HEALED_WITHIN_S)
    return Ran(history.entries, campaign.strikes, await read_all(bootstrap, home / "logs"), healed)


async def _settle(bootstrap: str, entries: Collection[Entry]) -> None:
    """Until every acknowledged request has an answer, but no longer than an answer may take; then a little more."""
    wanted = {entry.request_id for entry in entries if entry.kind == "ok" and entry.act in ("invoke", "repeat")}
    loop = asyncio.get_running_loop()
    given_up_at = loop.time() + SETTLE_S
    async with ResponseFollower(bootstrap) as follower:
        await follower.follow()
        while not wanted <= follower.answered and loop.time() < given_up_at:
            await follower.follow()
    await asyncio.sleep(QUIET_S)


def _some_run(plan: Plan, history: History, rng: random.Random) -> str:
    lately = history.entries[-RECENT:]
    request_id = rng.choice(lately).request_id if lately else f"chaos-{plan.seed}-0"
    return ids.run_id(DEFAULT_TENANT, request_id)


def write_strikes(file: Path, strikes: Collection[Strike]) -> None:
    """As JSON lines."""
    file.write_text("".join(json.dumps(asdict(strike)) + "\n" for strike in strikes), encoding="utf-8")
