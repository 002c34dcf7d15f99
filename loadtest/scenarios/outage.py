"""The only backend of a class is down for a minute, and there is nothing to fall back to.

Promised: at most 1.2 attempts a task, no run waits for its deadline, and runs succeed within 10 s of its return.
"""

from pathlib import Path
from typing import Any

from loadtest.component import Component
from loadtest.context import Context, broken
from loadtest.fleet import listening
from loadtest.ledger import following, latencies_ms
from loadtest.scenarios.breaker import (
    ATTEMPTS,
    CLASS,
    CLOSES_S,
    DEADLINE_S,
    OPENS_S,
    STEP,
    asked,
    attempts_per_task,
    load_until_well,
    recovery_s,
    share,
)
from schemas.base import RunStatus

CONFIG = Path(__file__).parents[1] / "outage"


async def run(context: Context) -> dict[str, Any]:
    """Keys: `attempts_per_task`, `opens_s`, `closes_s`, `recovery_s`, and how the runs of the outage ended."""
    component = Component(CONFIG / "models.yaml", CLASS)
    kafka = context.endpoints.kafka
    async with listening(kafka, component), following(kafka, DEADLINE_S) as needy:
        (spell,) = spells = await component.spells()
        await load_until_well(context, component, spells, {"needy": needy})
    ill = asked(needy.entries, spell.begins_ms, spell.ends_ms)
    attempts, recovery = attempts_per_task(ill, STEP), recovery_s(needy.entries, spell)
    opens, closes = component.opens_s(spell), component.closes_s(spell)
    return {
        "runs": len(needy.entries),
        "runs_of_the_outage": len(ill),
        "attempts_per_task": attempts,
        "opens_s": opens,
        "closes_s": closes,
        "recovery_s": recovery,
        "failed_share": share(ill, RunStatus.FAILED),
        "outage_ms": latencies_ms(ill),
        **broken(
            one_worker=len(component.workers) == 1,
            few_attempts=attempts <= ATTEMPTS,
            opens_soon=opens is not None and opens <= OPENS_S,
            closes_soon=closes is not None and closes <= CLOSES_S,
            recovers_soon=recovery is not None and recovery <= CLOSES_S,
            nothing_waits_for_its_deadline=share(ill, RunStatus.EXPIRED) == 0,
        ),
    }
