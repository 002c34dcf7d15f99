"""A load with spikes shorter than a load time: workers of one's own for all of it, or hosted ones for the spikes.

Own workers are paid by the hour, hosted ones by the call. Both serve the same calls; what is compared is the money,
with the cheapest fleet of one's own that is as quick at the 95th percentile as the hybrid.
"""

import random
from collections.abc import Callable
from typing import Any

from loadtest.measure import percentile
from loadtest.virtual.model import Model
from loadtest.virtual.paper import LLM
from loadtest.virtual.pipeline import Call, pipeline
from loadtest.virtual.plane import Plane
from loadtest.virtual.pool import Pool, usd
from services.autoscaler.domain.control import Control
from services.autoscaler.domain.rules import Rules
from services.orchestrator.domain.backends import Offer, choose, predicted_wait_s

OWN = LLM._replace(service_s=2.0)
HOSTED = Model("hosted", 0.0, 2.0, slots=1_000_000, usd_per_hour=0.0)
FULL_USE_USD = OWN.usd_per_hour / 3_600 * OWN.service_s / OWN.slots
"""A call on a worker of one's own, none of whose slots is ever free."""
HOSTED_TIMES = 2.5
"""As much as that, per call: assumed."""
BUDGET_S = 10.0
"""Of the step."""
BASE_PER_S, SPIKE_TIMES, SPIKE_S, EVERY_S = 6.0, 2.5, 120.0, 1_200.0
UNTIL_S = 7_200.0
BASE_WORKERS, MOST_WORKERS = 4, 10
RULES = Rules(slots=OWN.slots, ceiling=MOST_WORKERS, target_drain_s=10.0, cooldown_s=300.0)
ASK = pipeline("ask", [Call("answer", OWN.name)])


class Routed:
    """Two backends of one class: each call goes where the policy sends it, by what it would wait there."""

    def __init__(self, own: Pool, hosted: Pool) -> None:
        self._own = own
        self._hosted = hosted

    def submit(self, done: Callable[[], None]) -> None:
        """A call has come."""
        offers = [
            Offer("own", self._own_wait_s(), self._own.usual_service_s or OWN.service_s, usd=0.0),
            Offer("hosted", 0.0, HOSTED.service_s, usd=HOSTED_TIMES * FULL_USE_USD),
        ]
        chosen = choose(offers, BUDGET_S).backend
        (self._own if chosen == "own" else self._hosted).submit(done)

    def _own_wait_s(self) -> float | None:
        warm = self._own.count("warm")
        service_s = self._own.usual_service_s or OWN.service_s
        return predicted_wait_s(self._own.outstanding, service_s, OWN.slots * warm, 0.0 if warm else None)


def measure(seed: int = 0) -> dict[str, Any]:
    """Dollars for two hours; `saving_share` of the cheapest fleet that is as quick, or else of the largest."""
    hybrid = simulated(BASE_WORKERS, BASE_WORKERS, hosted=True, seed=seed)
    fleets = []
    for floor in range(BASE_WORKERS, MOST_WORKERS + 1):
        fleets.append(simulated(floor, MOST_WORKERS, hosted=False, seed=seed))
        if fleets[-1]["p95_s"] <= hybrid["p95_s"]:
            break
    return {
        "hybrid": hybrid,
        "own": fleets[-1],
        "own_slower": {fleet["least_workers"]: fleet for fleet in fleets[:-1]},
        "saving_share": round(1 - hybrid["usd"] / fleets[-1]["usd"], 3),
        "hosted_price_times": HOSTED_TIMES,
        "a_fifth_is_saved_until_times": _until_times(hybrid, fleets[-1]),
    }


def _until_times(hybrid: dict[str, Any], own: dict[str, Any]) -> float | None:
    """How dear a hosted call may be for a fifth to be saved still; None: no call was hosted, at whatever price."""
    if not hybrid["hosted_usd"]:
        return None
    spare: float = 0.8 * own["usd"] - hybrid["usd"]
    return round(HOSTED_TIMES * (1 + spare / float(hybrid["hosted_usd"])), 1)


def simulated(floor: int, ceiling: int, *, hosted: bool, seed: int) -> dict[str, Any]:
    """At least and at most so many workers of one's own."""
    rules = {OWN.name: RULES._replace(least=floor, ceiling=ceiling)}
    plane = Plane([OWN], rules, Control(prewarms=False, predicts=False), seed=seed)
    own, bought = plane.pools[OWN.name], Pool(HOSTED, plane.calendar, random.Random(seed))
    bought.put("elsewhere", "warm")
    for _ in range(floor):
        own.put("machine-0", "warm")
    if hosted:
        plane.runs.route(OWN.name, Routed(own, bought))
    plane.load(ASK, rate_per_s, BASE_PER_S * SPIKE_TIMES, UNTIL_S)
    plane.calendar.run(UNTIL_S)
    hosted_usd = bought.tally.tasks * HOSTED_TIMES * FULL_USE_USD
    return {
        "least_workers": floor,
        "most_workers": ceiling,
        "usd": round(usd(own) + hosted_usd, 2),
        "hosted_usd": round(hosted_usd, 2),
        "p95_s": round(percentile(plane.runs.took_s, 95), 2),
        "hosted_share": round(bought.tally.tasks / max(1, bought.tally.tasks + own.tally.tasks), 3),
    }


def rate_per_s(now_s: float) -> float:
    """Requests: a spike at the end of every twenty minutes."""
    in_spike = now_s % EVERY_S >= EVERY_S - SPIKE_S
    return BASE_PER_S * (SPIKE_TIMES if in_spike else 1.0)
