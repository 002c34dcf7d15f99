"""A component fails for a while, and later is ten times slower. One pipeline can do without it; one never asks it.

Promised: its breaker opens within 5 s and closes within 10 s of its recovery; meanwhile the runs that lose it are
partial, and at once; the other pipeline's p95 stays within 1.2 times what it was.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from headway.client import HeadwayClient
from loadtest.component import Component, Spell, worst
from loadtest.context import Context, broken
from loadtest.fleet import listening
from loadtest.generator import Call, Load, generate
from loadtest.ledger import Entry, Ledger, following, latencies_ms
from schemas.base import RunStatus
from schemas.responses import InferenceResponse

CONFIG = Path(__file__).parents[1] / "breaker"
CLASS, STEP = "fragile", "look"
RATE_PER_S = 10.0
"""Of each pipeline."""
DEADLINE_S = 30.0
WARM_UP_MS = 5_000
AFTER_S = 12.0
"""The load goes on for so long after the last outage."""
OPENS_S, CLOSES_S, RATIO, ATTEMPTS = 5.0, 10.0, 1.2, 1.2


async def run(context: Context) -> dict[str, Any]:
    """Keys: `opens_s`, `closes_s`, `recovery_s` by outage, `others_p95_ratio`, `partial_share`, and more."""
    component = Component(CONFIG / "models.yaml", CLASS)
    kafka = context.endpoints.kafka
    async with (
        listening(kafka, component),
        following(kafka, DEADLINE_S) as lossy,
        following(kafka, DEADLINE_S) as other,
    ):
        spells = await component.spells()
        began_ms = await load_until_well(context, component, spells, {"lossy": lossy, "other": other})
    cut_off = [
        entry for spell in spells for entry in asked(lossy.entries, opened_ms(component, spell), spell.ends_ms)
    ]
    before = asked(other.entries, began_ms + WARM_UP_MS, spells[0].begins_ms)
    during = [entry for spell in spells for entry in asked(other.entries, spell.begins_ms, spell.ends_ms)]
    ratio = round(latencies_ms(during)["p95"] / latencies_ms(before)["p95"], 3)
    opens, closes = by_kind(spells, component.opens_s), by_kind(spells, component.closes_s)
    partial = share(cut_off, RunStatus.PARTIAL)
    ill = [entry for spell in spells for entry in asked(lossy.entries, spell.begins_ms, spell.ends_ms)]
    return {
        "runs": {"lossy": len(lossy.entries), "other": len(other.entries)},
        "opens_s": opens,
        "closes_s": closes,
        "recovery_s": by_kind(spells, lambda spell: recovery_s(lossy.entries, spell)),
        "others_p95_ratio": ratio,
        "others_ms": {"before": latencies_ms(before), "during": latencies_ms(during)},
        "partial_share": partial,
        "cut_off_ms": latencies_ms(cut_off),
        "attempts_per_task": attempts_per_task(ill, STEP),
        **broken(
            one_worker=len(component.workers) == 1,
            opens_soon=(worst(opens.values()) or 1e9) <= OPENS_S,
            closes_soon=(worst(closes.values()) or 1e9) <= CLOSES_S,
            others_unharmed=ratio <= RATIO and other.verdict()["failed"] == 0,
            partial_instead_of_failed=share(ill, RunStatus.FAILED) == share(ill, RunStatus.EXPIRED) == 0,
            mostly_partial=partial >= 0.9,
        ),
    }


async def load_until_well(
    context: Context, component: Component, spells: Sequence[Spell], ledgers: dict[str, Ledger]
) -> int:
    """Asks each pipeline at a steady rate until after the last outage, and waits for the answers; when it began."""
    async with HeadwayClient(context.endpoints.kafka) as headway:
        for pipeline in ledgers:
            await headway.run(pipeline, {"number": -1}, timeout_s=DEADLINE_S)
        began_ms = component.now_ms
        load = Load(
            (spells[-1].ends_ms - began_ms) / 1_000 + AFTER_S,
            context.load.rate_per_s or RATE_PER_S,
            seed=context.load.seed,
            warm_up_s=0.0,
        )
        context.say(f"outages: {load.duration_s:.0f} s at {load.rate_per_s}/s for each pipeline")
        async with asyncio.TaskGroup() as group:
            for pipeline, ledger in ledgers.items():
                group.create_task(generate(load, _asker(headway, pipeline, ledger)))
        await asyncio.gather(*(ledger.settle() for ledger in ledgers.values()))
    return began_ms


def _asker(headway: HeadwayClient, pipeline: str, ledger: Ledger) -> Call:
    async def ask(number: int) -> bool:
        request_id = ledger.request_id(number)
        await headway.submit(pipeline, {"number": number}, request_id=request_id)
        ledger.acknowledged.add(request_id)
        return True

    return ask


def by_kind(spells: Collection[Spell], figure: Callable[[Spell], float | None]) -> dict[str, float | None]:
    """One figure of each outage."""
    return {spell.kind: figure(spell) for spell in spells}


def asked(entries: Collection[Entry], from_ms: int, to_ms: int) -> list[Entry]:
    """Those that were asked within that time and have an answer."""
    return [entry for entry in entries if entry.answers and from_ms <= (entry.asked_ms or 0) < to_ms]


def opened_ms(component: Component, spell: Spell) -> int:
    """When the breaker opened; the end of the outage if it never did."""
    opens_s = component.opens_s(spell)
    return spell.ends_ms if opens_s is None else spell.begins_ms + round(opens_s * 1_000)


def share(entries: Collection[Entry], status: RunStatus) -> float:
    """How many of them ended so."""
    return round(sum(entry.answers[0].status == status for entry in entries) / max(1, len(entries)), 4)


def attempts_per_task(entries: Collection[Entry], step: str) -> float:
    """The mean over these runs, attempts that nobody was given included."""
    attempts = [
        InferenceResponse.model_validate_json(entry.answers[0].value).steps[step].attempts for entry in entries
    ]
    return round(sum(attempts) / max(1, len(attempts)), 3)


def recovery_s(entries: Collection[Entry], spell: Spell) -> float | None:
    """From the end of an outage to the first answer of a run that succeeded and was asked after it."""
    answered = [
        entry.answers[0].at_ms for entry in entries if entry.succeeded and (entry.asked_ms or 0) >= spell.ends_ms
    ]
    return round((min(answered) - spell.ends_ms) / 1_000, 2) if answered else None
