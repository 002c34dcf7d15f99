"""Peak hours of a day like the fourteen before it: cold starts with and without the seasonal prediction."""

import random
from typing import Any, Protocol

from loadtest.virtual.days import DAY_S, HOUR_S, Day, some_day
from loadtest.virtual.paper import EMBEDDING, LLM
from loadtest.virtual.pipeline import Call, pipeline
from loadtest.virtual.plane import Plane
from services.autoscaler.domain.control import Control
from services.autoscaler.domain.rules import Rules
from services.autoscaler.domain.season import DAY_SLOTS, SLOT_S

MODELS = (EMBEDDING._replace(service_s=0.3, slots=2), LLM._replace(service_s=2.0, slots=2))
ASK = pipeline("ask", [Call("embed", "embedding"), Call("answer", "llm", ("embed",))])
RULES = Rules(slots=2, ceiling=20, target_drain_s=30.0, cooldown_s=300.0)
PEAK_PER_S = 6.0
DAYS = 14
FROM_H, UNTIL_H = 7.0, 19.0
PEAK_HOURS = (9.0, 18.0)
LOOK_S = 2.0


class Load(Protocol):
    """What a day is like."""

    def per_s(self, at_s: float) -> float:
        """At a time since the epoch."""


def measure(seed: int = 0) -> dict[str, Any]:
    """Of peak hours: `removed_share` of the calls that waited for a load; `over_provision` in worker hours."""
    dice = random.Random(seed)
    history = [some_day(PEAK_PER_S, dice) for _ in range(DAYS)]
    today = some_day(PEAK_PER_S, dice)
    reactive, _ = simulated(Control(predicts=False), today, [], seed)
    predicted, plane = simulated(Control(), today, history, seed)
    errors = {name: plane.control.prediction(name).accuracy.error for name in plane.pools}
    return {
        "reactive": reactive,
        "predicted": predicted,
        "removed_share": round(1 - predicted["cold_calls"] / reactive["cold_calls"], 4),
        "over_provision": round(predicted["worker_hours"] / reactive["worker_hours"] - 1, 4),
        "prediction_error": {name: round(error or 0.0, 3) for name, error in errors.items()},
    }


def simulated(control: Control, today: Day, history: list[Day], seed: int) -> tuple[dict[str, Any], Plane]:
    """From before the offices open until after they have closed."""
    midnight_s = DAYS * DAY_S
    rules = {model.name: RULES for model in MODELS}
    plane = Plane(MODELS, rules, control, seed=seed, look_s=LOOK_S, began_s=midnight_s + FROM_H * HOUR_S)
    for model in MODELS:
        plane.pools[model.name].put("machine-0", "warm")
        for number, day in enumerate(history):
            learn(control, model.name, day, number * DAY_S)
    begin_s, end_s = (midnight_s + hour * HOUR_S for hour in PEAK_HOURS)
    plane.load(ASK, today.per_s, today.peak_per_s, midnight_s + UNTIL_H * HOUR_S)
    plane.calendar.run(begin_s - 600)
    before = _colds(plane)
    plane.calendar.run(end_s)
    colds = _colds(plane) - before
    plane.calendar.run(midnight_s + UNTIL_H * HOUR_S)
    return {
        "cold_calls": colds,
        "worker_hours": round(worker_hours(plane), 2),
        "runs": len(plane.runs.took_s),
    }, plane


def learn(control: Control, name: str, day: Load, midnight_s: float) -> None:
    """Slot by slot, as the looks of that day would have told it."""
    for slot in range(DAY_SLOTS):
        at_s = midnight_s + slot * SLOT_S
        seconds = range(0, SLOT_S, 30)
        control.prediction(name).learn(at_s, sum(day.per_s(at_s + second) for second in seconds) / len(seconds))


def _colds(plane: Plane) -> int:
    return sum(pool.tally.colds for pool in plane.pools.values())


def worker_hours(plane: Plane) -> float:
    """Of all classes, in whatever state."""
    for pool in plane.pools.values():
        pool.settle()
    return sum(sum(pool.tally.replica_s.values()) for pool in plane.pools.values()) / HOUR_S
