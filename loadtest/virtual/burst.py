"""Ten times the traffic for ten minutes: each class grows by its own rate of calls, and is back afterwards."""

import math
from typing import Any

from loadtest.measure import percentile
from loadtest.virtual.model import Model
from loadtest.virtual.paper import CODE, EMBEDDING, RETRIEVAL, SHARES
from loadtest.virtual.pipeline import Call, pipeline
from loadtest.virtual.plane import Plane
from services.autoscaler.domain.control import Control, Plan
from services.autoscaler.domain.policy import BUSY_SHARE, TOLERANCE
from services.autoscaler.domain.rules import Rules

SERVICE_S = 0.6
"""Of every class, so that only the share of the requests that call it tells one from another."""
MODELS = tuple(model._replace(service_s=SERVICE_S) for model in (EMBEDDING, RETRIEVAL, CODE))
ASSIST = pipeline(
    "assist",
    [
        Call("embed", "embedding"),
        Call("retrieve", "retrieval", ("embed",), SHARES["retrieval"]),
        Call("code", "code", ("retrieve",), SHARES["code"]),
    ],
)
BASE_PER_S, TIMES = 40.0, 10
BURST_S, UNTIL_S, END_S = 900.0, 1_500.0, 2_700.0
RULES = Rules(slots=4, ceiling=200, target_drain_s=60.0, cooldown_s=300.0)
PER_REPLICA_S = RULES.slots * BUSY_SHARE / SERVICE_S
"""Calls a second that a worker takes."""
EVERY_REQUEST = BASE_PER_S / PER_REPLICA_S
"""Workers that a class which every request calls takes at the usual rate: what peaks are told in."""


def measure(seed: int = 0, rules: Rules = RULES) -> dict[str, Any]:
    """By class: `peak_ratio` is its most workers over those that one call a request takes at the usual rate."""
    control = Control(predicts=False)
    plane = Plane(MODELS, {model.name: rules for model in MODELS}, control, seed=seed, machines=8)
    for model in MODELS:
        for number in range(round(EVERY_REQUEST * SHARES[model.name] + 0.499)):
            plane.pools[model.name].put(f"machine-{number % 8}", "warm")
    wanted: dict[str, list[int]] = {model.name: [] for model in MODELS}

    def note(plan: Plan) -> None:
        for name, decision in plan.decisions.items():
            wanted[name].append(decision.replicas)

    plane.watch(note)
    plane.load(ASSIST, rate_per_s, BASE_PER_S * TIMES, END_S)
    plane.calendar.run(END_S)
    took_s = plane.runs.took_s
    return {
        "base_per_s": BASE_PER_S,
        "times": TIMES,
        "latency_s": {f"p{percent}": round(percentile(took_s, percent), 2) for percent in (50, 95, 99)},
        "by_class": {model.name: _of_class(model, wanted[model.name], rules.cooldown_s) for model in MODELS},
    }


def rate_per_s(now_s: float) -> float:
    """Requests."""
    return BASE_PER_S * (TIMES if BURST_S <= now_s < UNTIL_S else 1)


def _of_class(model: Model, wanted: list[int], cooldown_s: float) -> dict[str, Any]:
    share, base = SHARES[model.name], max(wanted[int(BURST_S) - 300 : int(BURST_S)])
    peak = max(wanted)
    settled = math.ceil(base * (1 + TOLERANCE))
    back_s = next(
        (second - UNTIL_S for second in range(int(UNTIL_S), len(wanted)) if wanted[second] <= settled), None
    )
    needed_s = sum(_needed(share, second) for second in range(len(wanted)))
    return {
        "share": share,
        "base_replicas": base,
        "peak_replicas": peak,
        "peak_ratio": round(peak / EVERY_REQUEST, 2),
        "of_rate": round(peak / EVERY_REQUEST / (share * TIMES), 3),
        "back_to_base_cooldowns": None if back_s is None else round(back_s / cooldown_s, 2),
        "over_provision": round(sum(wanted) / needed_s - 1, 3),
    }


def _needed(share: float, second: int) -> float:
    return rate_per_s(second) * share / PER_REPLICA_S
