"""Twenty-four hours of a day-shaped load, everything on: is it quick, is it steady, what does it cost?"""

import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

from loadtest.measure import SERIES, percentile
from loadtest.virtual.days import DAY_S, HOUR_S, Day, some_day
from loadtest.virtual.paper import CODE, EMBEDDING, LLM, RETRIEVAL, SHARES
from loadtest.virtual.pipeline import Call, pipeline
from loadtest.virtual.plane import Plane
from loadtest.virtual.pool import Pool
from loadtest.virtual.predictive import learn
from services.autoscaler.domain.control import Control, Plan
from services.autoscaler.domain.policy import BUSY_SHARE
from services.autoscaler.domain.rules import Rules

MODELS = (
    EMBEDDING._replace(service_s=0.5, slots=2),
    RETRIEVAL._replace(service_s=0.5, slots=2),
    LLM._replace(service_s=2.0, slots=2),
    CODE._replace(service_s=1.0, slots=2),
)
ASSIST = pipeline(
    "assist",
    [
        Call("embed", "embedding"),
        Call("retrieve", "retrieval", ("embed",), SHARES["retrieval"]),
        Call("answer", "llm", ("retrieve",)),
        Call("execute", "code", ("answer",), SHARES["code"]),
    ],
)
CALLED = {**SHARES, "llm": 1.0}
RULES = Rules(slots=2, ceiling=20, target_drain_s=30.0, cooldown_s=300.0)
PEAK_PER_S = 4.0
HISTORY = 14
LOOK_S = 5.0
PLOTTED_S = 600.0
LATE_S = 30.0
"""A run is late that takes longer: the deadline of an `ask`."""


def measure(seed: int = 0) -> dict[str, Any]:
    """By class: `changes` of its workers, `least_apart_s` between two that took some away, `over_provision`."""
    dice = random.Random(seed)
    control = Control()
    begin_s = HISTORY * DAY_S
    plane = Plane(MODELS, {model.name: RULES for model in MODELS}, control, seed=seed, look_s=LOOK_S, began_s=begin_s)
    for model in MODELS:
        plane.pools[model.name].put("machine-0", "warm")
        for number in range(HISTORY):
            learn(control, model.name, some_day(PEAK_PER_S * CALLED[model.name], dice), number * DAY_S)
    today = some_day(PEAK_PER_S, dice)
    watched = Watched(plane, today)
    plane.watch(watched.look)
    plane.load(ASSIST, today.per_s, today.peak_per_s, begin_s + DAY_S)
    plane.calendar.run(begin_s + DAY_S + 600)
    took_s = plane.runs.took_s
    return {
        "runs": len(took_s),
        "unfinished": plane.runs.open,
        "latency_s": {f"p{percent}": round(percentile(took_s, percent), 2) for percent in (50, 95, 99)},
        "late_share": round(sum(took > LATE_S for took in took_s) / len(took_s), 5),
        "by_class": {name: watched.figures(name, pool) for name, pool in plane.pools.items()},
        SERIES: watched.series,
    }


class Watched:
    """What is seen of a day, look by look."""

    def __init__(self, plane: Plane, today: Day) -> None:
        self.series: dict[str, list[Any]] = {"hour": [], "requests_per_s": [], "replicas": [], "lag_s": []}
        self._plane = plane
        self._today = today
        self._replicas: defaultdict[str, list[int]] = defaultdict(list)
        self._lag_s: defaultdict[str, list[float]] = defaultdict(list)

    def look(self, plan: Plan) -> None:
        """One."""
        for name, decision in plan.decisions.items():
            self._replicas[name].append(decision.replicas)
            self._lag_s[name].append(decision.terms.lag_s or 0.0)
        now_s = self._plane.calendar.now_s
        if now_s % PLOTTED_S < LOOK_S:
            self.series["hour"].append(round(now_s % DAY_S / HOUR_S, 2))
            self.series["requests_per_s"].append(round(self._today.per_s(now_s), 2))
            self.series["replicas"].append({name: numbers[-1] for name, numbers in self._replicas.items()})
            self.series["lag_s"].append({name: round(max(lags[-120:]), 2) for name, lags in self._lag_s.items()})

    def figures(self, name: str, pool: Pool) -> dict[str, Any]:
        """Of one class."""
        numbers, model = self._replicas[name], pool.model
        changed = [look for look, (before, after) in enumerate(pairwise(numbers), 1) if before != after]
        lowered = [look for look in changed if numbers[look] < numbers[look - 1]]
        apart = [LOOK_S * (after - before) for before, after in pairwise(lowered)]
        needed = pool.tally.tasks * model.service_s / (model.slots * BUSY_SHARE) / LOOK_S
        return {
            "calls": pool.tally.tasks,
            "peak_replicas": max(numbers),
            "changes": len(changed),
            "least_apart_s": min(apart, default=None),
            "cold_calls": pool.tally.colds,
            "lag_peak_s": round(max(self._lag_s[name]), 1),
            "over_provision": round(sum(numbers) / needed - 1, 3),
        }
