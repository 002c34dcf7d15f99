"""Whether every queue has the workers that it is to have, as `headway doctor` asks: pure."""

from collections.abc import Iterable, Mapping, Sequence

from headway.cli.checkup import Finding
from schemas.definitions import definition_of
from schemas.fleet import HostStatus, ScalingDecision, WorkerStatus
from schemas.models import Queue
from services.autoscaler.domain.replicas import own, replicas
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


def current(queues: Iterable[Queue], workers: Sequence[WorkerStatus], hosts: Iterable[HostStatus]) -> Finding:
    """Whether workers that no host keeps run by the configuration in force: a host replaces its own."""
    kept_by = {host.instance for host in hosts}
    alone = [worker for worker in workers if worker.host not in kept_by]
    outdated = [queue.label for queue in queues if any(_is_outdated(worker, queue) for worker in own(queue, alone))]
    if outdated:
        names = " ".join(f"deployment/worker-{label.replace('.', '-')}" for label in outdated)
        found = f"workers of {', '.join(outdated)} were started with another definition of it"
        return Finding("definitions", False, found, f"kubectl -n headway rollout restart {names}")
    return Finding("definitions", True, "all workers run by the configuration in force, or will by themselves")


def _is_outdated(worker: WorkerStatus, queue: Queue) -> bool:
    """Versions that do not tell count as current."""
    return worker.definition not in (None, definition_of(queue))
