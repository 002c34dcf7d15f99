"""A branch that a quarter of the runs take: how often its class is started ahead, and how often in vain."""

from typing import Any

from loadtest.virtual.model import Model
from loadtest.virtual.paper import CLASSIFIER_LOAD_S, LLM, SHARES
from loadtest.virtual.pipeline import Call, pipeline
from loadtest.virtual.plane import Plane
from services.autoscaler.domain.control import Control
from services.autoscaler.domain.rules import Rules

THINKING = LLM._replace(service_s=15.0)
SANDBOX = Model("sandbox", CLASSIFIER_LOAD_S, 1.0)
ASSIST = pipeline("assist", [Call("think", "llm"), Call("execute", "sandbox", ("think",), SHARES["code"])])
GROUP_PER_S, GROUP_S, EVERY_S = 0.4, 20.0, 240.0
"""Requests come in groups of about eight, so far apart that the class is at zero when the next ones come."""
UNTIL_S = 6 * 3_600.0
RULES = Rules(slots=4, ceiling=4, target_drain_s=10.0, cooldown_s=30.0)


def measure(seed: int = 0) -> dict[str, Any]:
    """The class of the branch goes to zero between its calls; the one before it is always on."""
    without, _ = simulated(Control(prewarms=False, predicts=False), seed)
    ahead, plane = simulated(Control(predicts=False), seed)
    tally = plane.control.false_warms.tallies["sandbox"]
    return {
        "branch_share": SHARES["code"],
        "started_ahead": tally.started,
        "in_vain": tally.in_vain,
        "false_share": round(tally.false_share, 3),
        "cold_calls": ahead["cold_calls"],
        "cold_calls_without": without["cold_calls"],
        "waited_s": ahead["waited_s"],
        "waited_without_s": without["waited_s"],
    }


def simulated(control: Control, seed: int) -> tuple[dict[str, Any], Plane]:
    """Six hours."""
    rules = {"llm": RULES, "sandbox": RULES._replace(tier="zero")}
    plane = Plane([THINKING, SANDBOX], rules, control, seed=seed, machines=1)
    plane.pools["llm"].put("machine-0", "warm")
    plane.load(ASSIST, rate_per_s, GROUP_PER_S, UNTIL_S)
    plane.calendar.run(UNTIL_S + 600)
    tally = plane.pools["sandbox"].tally
    return {"cold_calls": tally.colds, "waited_s": round(tally.cold_s, 1)}, plane


def rate_per_s(now_s: float) -> float:
    """Requests."""
    return GROUP_PER_S if now_s % EVERY_S < GROUP_S else 0.0
