"""Which queues are kept asleep where a budget says what that may cost: what each has learned, made a candidate.

A queue at zero that is called about λ times a second is cold for a call before which a cooldown has passed without
any: of calls that come independently (Poisson) that is a share of e^(-λ·cooldown). Each such start is waited for by
the call that asked for it, and by those that come while it lasts.
"""

import math
from collections.abc import Mapping

from schemas.models import Queue
from services.autoscaler.domain.learned import LearnedState
from services.autoscaler.domain.rules import Rules, Tier
from services.autoscaler.domain.tiers import Candidate, standby
from services.autoscaler.domain.watched import Watched

ASLEEP_SHARE = 0.1
"""Of a warm worker's price: one that sleeps keeps neither GPU nor CPU."""
WAKE_SHARE = 0.1
"""Of a load's time."""
HOUR_S = 3_600.0


def affordable(watched: Watched, learned: LearnedState) -> Mapping[str, Tier]:
    """The tiers of queues that need not be warm, by label; nothing without a budget.

    Of a queue that is not known yet what is configured stands.
    """
    if watched.budget_usd_hour is None:
        return {}
    loads_s = {label: queue.start_s for label, queue in learned.queues.items() if queue.start_s}
    optional = [queue for queue in watched.queues if queue.scaling.tier != "always"]
    candidates = {queue.label: _candidate(queue, watched, learned, loads_s) for queue in optional}
    settled = sum(
        _usd_per_hour(queue)
        for queue in optional
        if candidates[queue.label] is None and queue.scaling.tier == "standby"
    )
    known = [candidate for candidate in candidates.values() if candidate is not None]
    chosen = {each.label for each in standby(known, max(0.0, watched.budget_usd_hour - settled))}
    return {each.label: "standby" if each.label in chosen else "zero" for each in known}


def _candidate(
    queue: Queue, watched: Watched, learned: LearnedState, loads_s: Mapping[str, float]
) -> Candidate | None:
    load_s, known = loads_s.get(queue.label), learned.queues.get(queue.label)
    if load_s is None or known is None or not known.day:
        return None
    per_s = sum(slot.mean for slot in known.day) / len(known.day)
    cold_per_s = per_s * math.exp(-per_s * queue.scaling.cooldown / 1_000)
    return Candidate(
        queue.label,
        cold_starts_per_hour=HOUR_S * cold_per_s * (1 + per_s * load_s),
        saved_s=load_s * (1 - WAKE_SHARE),
        critical_share=_critical_share(queue.model_class, watched, loads_s),
        usd_per_hour=_usd_per_hour(queue),
    )


def _critical_share(model_class: str, watched: Watched, loads_s: Mapping[str, float]) -> float:
    """Of the pipelines that call it: in how many nothing takes longer to load. All load at once (pre-warm)."""
    calling = [pipeline for pipeline in watched.pipelines if model_class in pipeline]
    own_s = loads_s.get(model_class, 0.0)
    critical = [p for p in calling if all(loads_s.get(other, 0.0) <= own_s for other in p)]
    return len(critical) / len(calling) if calling else 1.0


def _usd_per_hour(queue: Queue) -> float:
    return ASLEEP_SHARE * queue.price.replica_hour_usd * Rules.of(queue, "standby").kept
