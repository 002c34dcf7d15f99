"""One request, everything at zero: how long its cold starts take it, one after the other, ahead, or from standby."""

from collections.abc import Collection, Sequence
from typing import Any

from loadtest.virtual.model import ASLEEP_SHARE, Model
from loadtest.virtual.paper import CLASSIFIER, EMBEDDING, LLM, RETRIEVAL
from loadtest.virtual.pipeline import Call, Pipeline, pipeline
from loadtest.virtual.plane import Plane
from services.autoscaler.domain.control import Control
from services.autoscaler.domain.rules import Rules
from services.autoscaler.domain.tiers import Candidate, standby

ASK = pipeline(
    "ask",
    [
        Call("guard", "classifier"),
        Call("embed", "embedding"),
        Call("retrieve", "retrieval", ("embed",)),
        Call("answer", "llm", ("guard", "retrieve")),
    ],
)
FIND = pipeline(
    "find",
    [
        Call("guard", "classifier"),
        Call("embed", "embedding"),
        Call("retrieve", "retrieval", ("guard", "embed")),
    ],
)
"""The same without an answer."""
MODELS = (CLASSIFIER, EMBEDDING, RETRIEVAL, LLM)
BUDGET_SHARE = 0.15
"""Of what all classes cost that are always on."""
ASKED_AT_S = 0.5
"""Between two looks."""
BASE = Rules(slots=4, ceiling=4, target_drain_s=10.0, cooldown_s=300.0, tier="zero")


def measure(seed: int = 0) -> dict[str, Any]:
    """Seconds to the answer."""
    asleep = within_budget(MODELS)
    return {
        "sequential_s": answered_s(ASK, prewarms=False, seed=seed),
        "prewarmed_s": answered_s(ASK, seed=seed),
        "slowest_load_s": LLM.load_s,
        "without_llm_sequential_s": answered_s(FIND, prewarms=False, seed=seed),
        "without_llm_prewarmed_s": answered_s(FIND, seed=seed),
        "without_llm_slowest_load_s": EMBEDDING.load_s,
        "standby_s": answered_s(ASK, asleep=asleep, seed=seed),
        "standby": sorted(asleep),
        "standby_cost_share": round(cost_share(asleep, MODELS), 3),
    }


def answered_s(asked: Pipeline, *, prewarms: bool = True, asleep: Collection[str] = (), seed: int = 0) -> float:
    """One request; the classes in `asleep` are, all others are at zero."""
    rules = {model.name: BASE._replace(tier="standby" if model.name in asleep else "zero") for model in MODELS}
    plane = Plane(MODELS, rules, Control(prewarms=prewarms, predicts=False), seed=seed)
    for name in asleep:
        plane.pools[name].put("machine-0", "asleep")
    plane.calendar.at(ASKED_AT_S, lambda: plane.runs.start(asked))
    plane.calendar.run(600.0)
    (took_s,) = plane.runs.took_s
    return round(took_s, 2)


def within_budget(models: Sequence[Model], asleep_share: float = ASLEEP_SHARE) -> set[str]:
    """The standby set, for requests that each need every class."""
    budget = BUDGET_SHARE * sum(model.usd_per_hour for model in models)
    candidates = [
        Candidate(model.name, 1.0, model.load_s - model.wake_s, 1.0, asleep_share * model.usd_per_hour)
        for model in models
    ]
    return {each.label for each in standby(candidates, budget)}


def cost_share(asleep: Collection[str], models: Sequence[Model], asleep_share: float = ASLEEP_SHARE) -> float:
    """What they cost asleep, of what all cost always on."""
    kept = sum(model.usd_per_hour for model in models if model.name in asleep)
    return asleep_share * kept / sum(model.usd_per_hour for model in models)
