"""What the fleet's statuses say of a queue and of a host, as the analyzer and the placement take it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from schemas.base import LogTime
from schemas.fleet import HostStatus, WorkerStatus
from schemas.models import Queue
from services.autoscaler.domain.hosts import Host, Room
from services.autoscaler.domain.observation import FleetSeen
from services.autoscaler.domain.replicas import own, replicas

MEMBERS = ("warm", "draining")
"""States of workers that are in their queue's group."""


def fleet_seen(queue: Queue, workers: Sequence[WorkerStatus], hosts: Iterable[HostStatus]) -> FleetSeen:
    """The queue's workers. A process that has not said anything yet is starting.

    A group without members stands still.
    """
    states = replicas(queue, workers)
    mute = sum(host.workers.get(queue.label, 0) for host in hosts) - sum(states.values())
    members = [worker for worker in own(queue, workers) if worker.state in MEMBERS]
    owned = {partition for worker in members for partition in worker.committed}
    return FleetSeen(
        warm=states["warm"],
        starting=states["starting"] + max(0, mute),
        asleep=states["asleep"],
        draining=states["draining"],
        busy=sum(worker.busy for worker in members),
        is_stable=not members or owned.issuperset(range(queue.lanes.count)),
        slots=_slots(queue, members),
    )


def _slots(queue: Queue, members: Iterable[WorkerStatus]) -> float | None:
    """Workers that pass calls on to one server share what it can take: more of them would have fewer each."""
    told = [worker.slots for worker in members if worker.state == "warm"]
    return fmean(told) if told and queue.brings_its_engine else None


def service_s(queue: Queue, workers: Iterable[WorkerStatus]) -> float | None:
    """The mean engine time of a task, by the slots that measured it; None where none has."""
    told = [(w.service_ms, w.slots) for w in own(queue, workers) if w.service_ms is not None and w.state == "warm"]
    slots = sum(each for _, each in told)
    return sum(service_ms * each for service_ms, each in told) / slots / 1_000 if slots else None


def start_s(queue: Queue, workers: Iterable[WorkerStatus]) -> float | None:
    """What the start of the worker that became ready last has taken."""
    told = [(w.ready_at or 0, w.start_ms) for w in own(queue, workers) if w.start_ms is not None]
    return max(told)[1] / 1_000 if told else None


def hosts_seen(
    hosts: Iterable[tuple[LogTime, HostStatus]], workers: Sequence[WorkerStatus], queues: Sequence[Queue]
) -> list[Host]:
    """Those that have said what room they have; each with the log time at which it was heard."""
    labels = {(queue.model_class, queue.backend): queue.label for queue in queues}
    counted: Counter[tuple[str, str, str]] = Counter()
    for worker in workers:
        if label := labels.get((worker.model_class, worker.backend)):
            counted[worker.host, worker.state, label] += 1

    def on(host: HostStatus, state: str) -> Mapping[str, int]:
        return {label: counted[host.instance, state, label] for label in host.workers}

    return [
        Host(
            status.instance,
            Room(status.capacity.cpu, status.capacity.memory, status.capacity.gpu_memory),
            heard_ms,
            gpus=status.capacity.gpus,
            labels=frozenset(status.labels),
            running=status.workers,
            ready=status.ready,
            asleep=on(status, "asleep"),
            draining=on(status, "draining"),
            classes=frozenset(status.model_classes),
            failing=frozenset(status.failing),
            leaving=status.leaving,
        )
        for heard_ms, status in hosts
        if status.capacity is not None
    ]
