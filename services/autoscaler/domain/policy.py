"""How many workers a queue is to have. Pure: what is seen and what was decided before in, a decision out.

    replicas = ceil(max(λ·S / 0.75,  min(λ', λ / 0.75)·S + waiting·S / (T_drain + T_start)) / slots)

λ·S is the work that runs bring each second, in slots that it keeps busy (Little's law); three quarters of all slots
are to be busy, since queues grow without bound towards all of them. λ' is what arrives now, and the slots beyond it
clear what waits within the target, counted from when a worker started now is ready. What arrives faster than the
headroom takes is a wave, and will have passed: it counts when it waits. A worker has as many slots as its engine can
take just now, where each brings an engine of its own. Then, in this order: the
stabilisation window, and no less than tasks in flight need; floors, which tier, schedule, prediction and pre-warm
set; the ceiling. Why it is not the simplest formula: infra/decisions/0009.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.autoscaler.domain.demand import Analysis, Demand, Missing
from services.autoscaler.domain.rules import Floor, Rules
from services.autoscaler.domain.steadiness import Steadied, begin, steadied

BUSY_SHARE = 0.75
"""Of the slots: the rest is room for what comes by chance, and drains what waits."""
TOLERANCE, DOUBT = 0.1, 0.3
"""How much more than workers are sized for starts none: it would go again at once. After some were taken away, for a
cooldown, it takes as much as would fill the headroom: a little more is the same load, seen by chance as less before.
"""


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything that the load says, before floors and ceiling."""

    sustained: float
    """λ·S, in slots."""
    arriving: float
    """λ'·S, in slots; of a wave, no more than the headroom takes."""
    draining: float
    """waiting·S / (T_drain + T_start), in slots."""
    slots: float
    """Of a worker."""
    lag_s: float | None
    needed: float
    """Workers, not rounded."""
    in_flight: int
    """Workers that the tasks in flight need."""

    @property
    def by_load(self) -> int:
        """The formula's result."""
        return _ceil(self.needed)

    def wish(self, there: int, tolerance: float = TOLERANCE) -> int:
        """How many workers the load asks for, where `there` are sized for already."""
        enough = self.by_load if self.needed > there * (1 + tolerance) else min(self.by_load, there)
        return max(enough, self.in_flight) if self.in_flight > there else enough


IDLE = Terms(sustained=0.0, arriving=0.0, draining=0.0, slots=0.0, lag_s=None, needed=0.0, in_flight=0)


@dataclass(frozen=True, slots=True)
class Decision:
    """How many workers, and why."""

    replicas: int
    """Warm, those that start included."""
    asleep: int
    terms: Terms
    steadied: Steadied
    floors: tuple[Floor, ...]
    rules: Rules
    missing: tuple[str, ...] = ()
    """Measures that were not there: the terms are those of the last decision."""


def decide(
    rules: Rules, analysis: Analysis, floors: Sequence[Floor], last: Decision | None, now_s: float
) -> Decision | None:
    """One look later. None: not even the fleet was ever heard; whatever runs goes on."""
    floors = (rules.warm, *floors)
    if isinstance(analysis, Missing):
        return _held(rules, analysis, floors, last, now_s)
    terms = weigh(rules, analysis)
    before = last.steadied if last else begin(analysis.fleet.coming_or_here, now_s)
    least = terms.in_flight if analysis.fleet.is_stable else before.replicas
    tolerance = DOUBT if before.was_just_lowered(now_s, rules.cooldown_s) else TOLERANCE
    after = steadied(before, terms.wish(before.replicas, tolerance), now_s, rules.cooldown_s, least)
    return _decision(rules, terms, after, floors)


def weigh(rules: Rules, demand: Demand) -> Terms:
    """The formula's terms."""
    arriving = min(demand.total.arriving, demand.sustained / BUSY_SHARE)
    draining = demand.waiting_s / (rules.target_drain_s + demand.start_s)
    slots = rules.usable(demand.fleet.slots)
    return Terms(
        demand.sustained,
        arriving,
        draining,
        slots,
        demand.lag_s(slots),
        needed=max(demand.sustained / BUSY_SHARE, arriving + draining) / slots,
        in_flight=_ceil(demand.fleet.busy / rules.slots),  # they run where they are, however few may follow
    )


def _held(
    rules: Rules, analysis: Missing, floors: tuple[Floor, ...], last: Decision | None, now_s: float
) -> Decision | None:
    """As before, but that what is known to wait gets one worker; and no window passes while nothing is seen."""
    if last is None and analysis.there is None and not analysis.some_wait:
        return None
    before = last.steadied if last else begin(analysis.there or 0, now_s)
    wish = max(before.replicas, int(analysis.some_wait))
    after = steadied(before, wish, now_s, rules.cooldown_s, least=before.replicas)
    held = _decision(rules, last.terms if last else replace(IDLE, slots=rules.slots), after, floors)
    return replace(held, missing=analysis.measures)


def _decision(rules: Rules, terms: Terms, steady: Steadied, floors: tuple[Floor, ...]) -> Decision:
    wanted = max(steady.replicas, *(floor.replicas for floor in floors))
    replicas = min(wanted, rules.ceiling)
    return Decision(replicas, max(0, rules.kept - replicas), terms, steady, floors, rules)


def _ceil(value: float) -> int:
    """Without taking what rounding adds, like 4.000000000001, for one more."""
    return math.ceil(value - 1e-9)
