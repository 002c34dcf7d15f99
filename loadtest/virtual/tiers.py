"""Twenty components, most of them called now and then: how many cold starts a warm tier removes, at what cost.

Requests call a few of the components, popular ones often (Zipf). Whatever is not called for a cooldown goes to zero.
"""

import random
from collections.abc import Collection
from typing import Any

from loadtest.virtual.cascade import BUDGET_SHARE
from loadtest.virtual.model import ASLEEP_SHARE, Model
from loadtest.virtual.pipeline import Call, Pipeline, pipeline
from loadtest.virtual.plane import Plane
from loadtest.virtual.pool import Pool, usd
from services.autoscaler.domain.control import Control
from services.autoscaler.domain.rules import Rules, Tier
from services.autoscaler.domain.tiers import Candidate, standby

COMPONENTS, CALLS = 20, 3
REQUESTS_PER_S = 1 / 120
HOURS = 6
LOOK_S = 5.0
BASE = Rules(slots=4, ceiling=4, target_drain_s=10.0, cooldown_s=300.0, tier="zero")
PIPELINES = 40
WARM_SHARE = 0.20
"""Of the cost of all that are always on: the paper's warm tier."""
ASLEEP_SHARES = (ASLEEP_SHARE, 2 * ASLEEP_SHARE)
"""What a sleeping worker may cost, of a warm one."""


def measure(seed: int = 0) -> dict[str, Any]:
    """Cold starts of half a day, and what share of them each tier removes, for what share of the always-on cost."""
    models = components(seed)
    none = simulated(models, {}, seed)
    popular = by_calls(models, none, WARM_SHARE)
    warm_best = chosen(models, none, WARM_SHARE, 1.0)

    def tried(names: list[str], tier: Tier, price_share: float) -> dict[str, Any]:
        return _row(none, simulated(models, dict.fromkeys(names, tier), seed), names, price_share)

    return {
        "components": COMPONENTS,
        "cold_starts": colds(none),
        "always_on_usd_hour": round(always_on(models), 2),
        "popular_warm": tried(popular, "always", 1.0),
        "per_dollar_warm": tried(warm_best, "always", 1.0),
        "standby": {
            f"{share:g}": tried(chosen(models, none, BUDGET_SHARE, share), "standby", share)
            for share in ASLEEP_SHARES
        },
    }


def components(seed: int) -> tuple[Model, ...]:
    """Load times between the functions' and the LLM's, and prices that grow with them, though not evenly."""
    dice = random.Random(seed)
    loads = [2.0 * 75.0 ** dice.random() for _ in range(COMPONENTS)]
    return tuple(
        Model(f"component-{number:02}", load, 0.3, usd_per_hour=0.05 + load / 75 * dice.uniform(0.5, 1.5))
        for number, load in enumerate(loads)
    )


def simulated(models: tuple[Model, ...], kept: dict[str, Tier], seed: int) -> Plane:
    """Half a day of it."""
    rules = {model.name: BASE._replace(tier=kept.get(model.name, "zero")) for model in models}
    plane = Plane(models, rules, Control(predicts=False), seed=seed, machines=1, look_s=LOOK_S)
    for name, tier in kept.items():
        plane.pools[name].put("machine-0", "warm" if tier == "always" else "asleep")
    until_s = HOURS * 3_600.0
    for each in _pipelines(models, seed):
        rate = REQUESTS_PER_S / PIPELINES
        plane.load(each, lambda _: REQUESTS_PER_S / PIPELINES, rate, until_s)
    plane.calendar.run(until_s + 600)
    return plane


def _pipelines(models: tuple[Model, ...], seed: int) -> list[Pipeline]:
    """Each calls some components one after the other; the first are in most of them."""
    dice = random.Random(seed + 1)
    weights = [1 / (rank + 1) for rank in range(len(models))]
    return [pipeline(f"pipeline-{number}", _chain(models, weights, dice)) for number in range(PIPELINES)]


def _chain(models: tuple[Model, ...], weights: list[float], dice: random.Random) -> list[Call]:
    names: list[str] = []
    while len(names) < CALLS:
        (model,) = dice.choices(models, weights)
        if model.name not in names:
            names.append(model.name)
    return [Call(f"step-{place}", name, (f"step-{place - 1}",) if place else ()) for place, name in enumerate(names)]


def colds(plane: Plane) -> int:
    """Calls that waited for a model to be loaded."""
    return sum(pool.tally.colds for pool in plane.pools.values())


def chosen(models: tuple[Model, ...], seen: Plane, budget_share: float, price_share: float) -> list[str]:
    """By what half a day without any tier has shown: most waiting saved for a dollar.

    What a class's loads were waited for, of all the time they took, is how critical it is: in a pre-warmed pipeline
    the later steps' classes load while earlier ones still work.
    """
    candidates = [_candidate(seen.pools[model.name], price_share) for model in models]
    return [each.label for each in standby(candidates, budget_share * always_on(models))]


def _candidate(pool: Pool, price_share: float) -> Candidate:
    model, tally = pool.model, pool.tally
    return Candidate(
        model.name,
        tally.colds / HOURS,
        model.load_s - (model.wake_s if price_share < 1 else 0.0),
        tally.cold_s / (tally.colds * model.load_s) if tally.colds else 0.0,
        price_share * model.usd_per_hour,
    )


def by_calls(models: tuple[Model, ...], seen: Plane, budget_share: float) -> list[str]:
    """The most called ones, as long as the money lasts: the simplest choice there is."""
    left, names = budget_share * always_on(models), []
    for model in sorted(models, key=lambda model: -seen.pools[model.name].tally.tasks):
        if model.usd_per_hour <= left:
            names.append(model.name)
            left -= model.usd_per_hour
    return names


def always_on(models: Collection[Model]) -> float:
    """Dollars an hour."""
    return sum(model.usd_per_hour for model in models)


def _row(before: Plane, after: Plane, names: Collection[str], price_share: float) -> dict[str, Any]:
    models = [pool.model for pool in after.pools.values()]
    kept = sum(model.usd_per_hour for model in models if model.name in names)
    return {
        "kept": len(names),
        "cost_share": round(price_share * kept / always_on(models), 3),
        "removed_share": round(1 - colds(after) / colds(before), 3),
        "waiting_removed_share": round(1 - waited_s(after) / waited_s(before), 3),
        "usd_of_all": round(sum(usd(pool, price_share) for pool in after.pools.values()), 2),
    }


def waited_s(plane: Plane) -> float:
    """For loads and wake-ups, by all calls together."""
    return sum(pool.tally.cold_s for pool in plane.pools.values())
