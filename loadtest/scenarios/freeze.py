"""The store stands still (SIGSTOP) for half a minute under load: its connections stay open, and nothing answers.

Promised: at least half of the goodput meanwhile, and no run that ends later than 15 s after its deadline.
"""

import asyncio
from typing import Any, NamedTuple

from loadtest.context import Context, broken
from loadtest.ledger import following
from loadtest.nemesis import store
from loadtest.nemesis.fault import now_ms
from loadtest.nemesis.parts import Parts
from loadtest.steady import rate_per_s, steady

BEFORE_S, FREEZE_S, AFTER_S = 20.0, 30.0, 15.0
DEADLINE_S = 20.0
GOODPUT = 0.5
"""What must be left of it."""


class Frozen(NamedTuple):
    """When it began and ended, by the machine's clock, which is the broker's; what shows that it bit."""

    from_ms: int
    to_ms: int
    evidence: str


async def run(context: Context) -> dict[str, Any]:
    """Keys: `goodput_per_s{before,during,after}`, `evidence`, and the ledger's."""
    async with following(context.endpoints.kafka, DEADLINE_S) as ledger:
        duration_s = BEFORE_S + FREEZE_S + AFTER_S
        frozen = await steady(context, ledger, duration_s, DEADLINE_S, lambda: _freeze(context))
    verdict = ledger.verdict()
    before = ledger.goodput_per_s(frozen.from_ms - round(BEFORE_S * 1_000), frozen.from_ms)
    during = ledger.goodput_per_s(frozen.from_ms, frozen.to_ms)
    after = ledger.goodput_per_s(frozen.to_ms, frozen.to_ms + round(AFTER_S * 1_000))
    return {
        **verdict,
        "rate_per_s": rate_per_s(context),
        "goodput_per_s": {"before": before, "during": during, "after": after},
        "evidence": frozen.evidence,
        **broken(
            store_was_frozen=bool(frozen.evidence),
            goodput_kept=during >= GOODPUT * before,
            nothing_lost=verdict["lost"] == 0,
            nothing_late=verdict["late"] == 0,
            one_outcome=verdict["conflicting"] == 0,
        ),
    }


async def _freeze(context: Context) -> Frozen:
    await asyncio.sleep(BEFORE_S)
    context.say(f"freeze: the store stands still for {FREEZE_S:.0f} s")
    from_ms = now_ms()
    evidence = await store.freeze(Parts(context.home), FREEZE_S)
    return Frozen(from_ms, now_ms(), evidence.seen)
