"""Twenty-four recorded hours of a real load, everything on, and the same without looking ahead.

Is it quick, is it steady, what does it cost? What was recorded is how much came in each ten minutes; within them
requests come independently of each other.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from loadtest.measure import SERIES, percentile
from loadtest.virtual.days import DAY_S, HOUR_S
from loadtest.virtual.model import Model
from loadtest.virtual.paper import CODE, EMBEDDING, LLM, RETRIEVAL, SHARES
from loadtest.virtual.pipeline import Call, pipeline
from loadtest.virtual.plane import Plane
from loadtest.virtual.pool import Pool
from loadtest.virtual.predictive import learn, worker_hours
from loadtest.virtual.recorded import RecordedDay, recorded
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
"""In the busiest ten minutes."""
LOOK_S = 5.0
PLOTTED_S = 600.0
LATE_S = 30.0
"""A run is late that takes longer: the deadline of an `ask`."""


def measure(seed: int = 0) -> dict[str, Any]:
    """The last recorded day, those before it known; `reacting`: without pre-warming and prediction.

    By class: `changes` of its workers, `least_apart_s` between two that took some away, `over_provision`.
    """
    *history, today = recorded(PEAK_PER_S)
    reacting = simulated(Control(prewarms=False, predicts=False), [], today, seed)
    ours = simulated(Control(), history, today, seed)
    colds, colds_reacting = ours.figures()["cold_calls"], reacting.figures()["cold_calls"]
    return {
        **ours.figures(),
        "reacting": reacting.figures(),
        "cold_removed_share": round(1 - colds / colds_reacting, 3) if colds_reacting else None,
        "by_class": ours.by_class(),
        SERIES: ours.series,
    }


def simulated(control: Control, history: Sequence[RecordedDay], today: RecordedDay, seed: int) -> "Watched":
    """From midnight to midnight."""
    begin_s = len(history) * DAY_S
    plane = Plane(MODELS, {model.name: RULES for model in MODELS}, control, seed=seed, look_s=LOOK_S, began_s=begin_s)
    for model in MODELS:
        for _ in range(_needed(model, today.per_s(0.0))):
            plane.pools[model.name].put("machine-0", "warm")
        for number, day in enumerate(history):
            learn(control, model.name, day.times(CALLED[model.name]), number * DAY_S)
    watched = Watched(plane, today)
    plane.watch(watched.look)
    plane.load(ASSIST, today.per_s, today.peak_per_s, begin_s + DAY_S)
    plane.calendar.run(begin_s + DAY_S + 600)
    return watched


def _needed(model: Model, requests_per_s: float) -> int:
    """Workers for a load that lasts."""
    return math.ceil(requests_per_s * CALLED[model.name] * model.service_s / (model.slots * BUSY_SHARE))


class Watched:
    """What is seen of a day, look by look."""

    def __init__(self, plane: Plane, today: RecordedDay) -> None:
        self.series: defaultdict[str, list[Any]] = defaultdict(list)
        self._plane = plane
        self._began_s = plane.calendar.now_s
        self._today = today
        self._replicas: defaultdict[str, list[int]] = defaultdict(list)
        self._lag_s: defaultdict[str, list[float]] = defaultdict(list)
        self._plotted = 0
        """Runs."""

    def look(self, plan: Plan) -> None:
        """One."""
        for name, decision in plan.decisions.items():
            self._replicas[name].append(decision.replicas)
            self._lag_s[name].append(decision.terms.lag_s or 0.0)
        past_s = self._plane.calendar.now_s - self._began_s
        if past_s % PLOTTED_S < LOOK_S and past_s < DAY_S:
            self._plot(past_s / HOUR_S, self._today.per_s(past_s))

    def figures(self) -> dict[str, Any]:
        """Of all classes together."""
        took_s = self._plane.runs.took_s
        return {
            "runs": len(took_s),
            "unfinished": self._plane.runs.open,
            "latency_s": {f"p{percent}": round(percentile(took_s, percent), 2) for percent in (50, 95, 99, 99.9)},
            "late_share": round(sum(took > LATE_S for took in took_s) / len(took_s), 5),
            "cold_calls": sum(pool.tally.colds for pool in self._plane.pools.values()),
            "worker_hours": round(worker_hours(self._plane), 1),
        }

    def by_class(self) -> dict[str, Any]:
        """Of each."""
        return {name: self._of_class(name, pool) for name, pool in self._plane.pools.items()}

    def _plot(self, hour: float, requests_per_s: float) -> None:
        """What has come of the last ten minutes."""
        ended_s, self._plotted = self._plane.runs.took_s[self._plotted :], len(self._plane.runs.took_s)
        looks = round(PLOTTED_S / LOOK_S)
        self.series["hour"].append(round(hour, 2))
        self.series["requests_per_s"].append(round(requests_per_s, 2))
        self.series["replicas"].append({name: numbers[-1] for name, numbers in self._replicas.items()})
        self.series["lag_s"].append({name: round(max(lags[-looks:]), 2) for name, lags in self._lag_s.items()})
        for percent in (50, 99):
            self.series[f"p{percent}_s"].append(round(percentile(ended_s, percent), 2) if ended_s else None)

    def _of_class(self, name: str, pool: Pool) -> dict[str, Any]:
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
