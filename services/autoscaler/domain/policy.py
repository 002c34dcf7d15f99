"""How many workers a queue is to have. Pure: what is seen and what was decided before in, a decision out.

    replicas = ceil((λ·S + outstanding·S / T_drain) / (slots · 0.75))

λ·S is the work that arrives each second, in slots that it keeps busy (Little's law); outstanding·S / T_drain are the
slots that clear what is outstanding within the target; three quarters of all slots are to be busy, since queues grow
without bound towards all of them. Then, in this order: no less than tasks in flight need; the stabilisation window;
floors, which tier, schedule, prediction and pre-warm set; the ceiling.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.autoscaler.domain.demand import Analysis, Demand, Missing
from services.autoscaler.domain.rules import Floor, Rules
from services.autoscaler.domain.steadiness import Steadied, begin, steadied

BUSY_SHARE = 0.75
"""Of the slots: the rest is room for what comes by chance."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything that the load says, before floors and ceiling."""

    arriving: float
    """λ·S, in slots."""
    draining: float
    """outstanding·S / T_drain, in slots."""
    lag_s: float | None
    by_load: int
    in_flight: int
    """Workers that the tasks in flight need."""

    @property
    def wish(self) -> int:
        return max(self.by_load, self.in_flight)


IDLE = Terms(arriving=0.0, draining=0.0, lag_s=None, by_load=0, in_flight=0)


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
    """One look later. None: nothing was ever known, so whatever runs goes on; a guess could stop a busy worker."""
    floors = (rules.warm, *floors)
    if isinstance(analysis, Missing):
        return _held(rules, analysis, floors, last, now_s)
    terms = weigh(rules, analysis)
    before = last.steadied if last else begin(analysis.fleet.coming_or_here, now_s)
    after = steadied(before, terms.wish, now_s, rules.cooldown_s, may_lower=analysis.fleet.is_stable)
    return _decision(rules, terms, after, floors)


def weigh(rules: Rules, demand: Demand) -> Terms:
    """The formula's terms."""
    arriving, outstanding_s = demand.total
    draining = outstanding_s / rules.target_drain_s
    return Terms(
        arriving,
        draining,
        demand.lag_s(rules.slots),
        by_load=_ceil((arriving + draining) / (rules.slots * BUSY_SHARE)),
        in_flight=_ceil(demand.fleet.busy / rules.slots),
    )


def _held(
    rules: Rules, analysis: Missing, floors: tuple[Floor, ...], last: Decision | None, now_s: float
) -> Decision | None:
    """As before, but that what is known to wait gets one worker; and no window passes while nothing is seen."""
    if last is None and not analysis.some_wait:
        return None
    before = last.steadied if last else begin(0, now_s)
    wish = max(before.replicas, int(analysis.some_wait))
    after = steadied(before, wish, now_s, rules.cooldown_s, may_lower=False)
    held = _decision(rules, last.terms if last else IDLE, after, floors)
    return replace(held, missing=analysis.measures)


def _decision(rules: Rules, terms: Terms, steady: Steadied, floors: tuple[Floor, ...]) -> Decision:
    wanted = max(steady.replicas, *(floor.replicas for floor in floors))
    replicas = min(wanted, rules.ceiling)
    return Decision(replicas, max(0, rules.kept - replicas), terms, steady, floors, rules)


def _ceil(value: float) -> int:
    """Without taking what rounding adds, like 4.000000000001, for one more."""
    return math.ceil(value - 1e-9)
