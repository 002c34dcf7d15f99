"""Whether every queue has the workers that it is to have, as `headway doctor` asks: pure."""

from collections.abc import Mapping, Sequence

from headway.cli.checkup import Finding
from schemas.fleet import ScalingDecision, WorkerStatus
from schemas.models import Queue
from services.autoscaler.domain.replicas import replicas
from services.chassis.fleet import in_force

CHECK = "workers"


def staffed(
    queues: Sequence[Queue], decisions: Sequence[ScalingDecision], workers: Sequence[WorkerStatus]
) -> Finding:
    """Asleep, or not there at all, is well where it was decided so."""
    decided = in_force(decisions)
    crowded = [label for label, decision in decided.items() if decision.unplaced]
    if crowded:
        return Finding(
            CHECK, False, f"no host has room for {', '.join(crowded)}", f"headway scale explain {crowded[0]}"
        )
    warm = {queue.label: replicas(queue, workers)["warm"] for queue in queues}
    cold = [queue.label for queue in queues if not warm[queue.label] and _is_needed(queue, decided)]
    if cold:
        fix = f"headway models try {cold[0]} --input '{{…}}'"
        return Finding(CHECK, False, f"no warm worker for {', '.join(cold)}", fix)
    there = sum(map(bool, warm.values()))
    return Finding(CHECK, True, f"warm for {there} of {len(queues)} model classes, and for no other is one needed")


def _is_needed(queue: Queue, decided: Mapping[str, ScalingDecision]) -> bool:
    """Whether there is to be a warm one. Where nobody decides, hosts keep what the configuration says."""
    decision = decided.get(queue.label)
    if decision is None:
        return queue.scaling.tier != "zero" and queue.scaling.min_replicas > 0
    return decision.replicas > 0
