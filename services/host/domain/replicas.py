"""Which worker processes a host starts and stops: what is wanted, against what runs.

Time is monotonic seconds, an argument.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from schemas.models import Queue

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 10.0
PROVEN_S = 30.0
"""A worker that got ready and lived so long is started again as if it had never failed."""
FAILING_AFTER = 3
"""Failures in a row: something is wrong with the queue's workers on this machine."""
KILL_AFTER_S = 8.0
"""From SIGTERM: what has not drained by then is killed."""
SILENT_S = 60.0
"""A worker whose side door does not answer for so long is wedged, and killed."""

State = Literal["starting", "ready", "stopping", "down"]


class Replica(NamedTuple):
    """The place of one worker: `embedding` 0."""

    label: str
    """Of its queue: `class`, or `class.backend` for a further backend."""
    number: int

    @property
    def name(self) -> str:
        return f"{self.label}-{self.number}"


@dataclass(frozen=True, slots=True)
class Worker:
    """What is at a place: a process, or the memory of one that failed."""

    state: State
    version: str
    """Of the queue it was started for."""
    since: float
    """When it was started, told to stop, or found dead."""
    heard_at: float
    """When its side door last answered, ready or not."""
    failures: int = 0
    """In a row."""
    was_ready: bool = False
    """Since it was started."""

    @property
    def is_live(self) -> bool:
        return self.state in ("starting", "ready")

    def is_failing(self, now: float) -> bool:
        """Whether the queue's workers should rather be somewhere else: until this one has proven itself."""
        return self.failures >= FAILING_AFTER and not self.is_proven(now)

    def is_proven(self, now: float) -> bool:
        """Whether it works, so that a failure is the first one."""
        return self.was_ready and now - self.since >= PROVEN_S

    @property
    def retry_at(self) -> float:
        """When a worker that is down may be started again."""
        return self.since + min(LAST_BACKOFF_S, FIRST_BACKOFF_S * (1 << min(self.failures - 1, 8)))


class Start(NamedTuple):
    """Start a worker."""

    replica: Replica
    version: str


class Stop(NamedTuple):
    """Ask a worker to drain and end."""

    replica: Replica


class Kill(NamedTuple):
    """End a worker that does not end by itself."""

    replica: Replica


class Forget(NamedTuple):
    """Nothing runs there, and nothing should."""

    replica: Replica


Action = Start | Stop | Kill | Forget


def version_of(queue: Queue) -> str:
    """Changes when workers of the queue must be replaced; what is left out is for others to know, or in the tasks."""
    told = queue.model_dump_json(exclude={"price", "spill_at", "scaling", "resources"})
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def decide(wanted: Mapping[Replica, str], workers: Mapping[Replica, Worker], now: float) -> list[Action]:
    """What to do now. `wanted`: the version of each place. Asked again and again; repeats do no harm."""
    actions = [action for replica, worker in workers.items() for action in _end(replica, worker, wanted, now)]
    for replica, version in wanted.items():
        if _may_start(workers.get(replica), version, now):
            actions.append(Start(replica, version))
    if not actions:
        actions.extend(_replace_one(wanted, workers))
    return actions


def heard(worker: Worker, now: float, *, ready: bool) -> Worker:
    """A live worker whose side door has answered."""
    return replace(worker, state="ready" if ready else "starting", heard_at=now, was_ready=worker.was_ready or ready)


def after_exit(worker: Worker, now: float) -> Worker | None:
    """What is at a place whose process has ended: nothing if it was asked to, else one more failure."""
    if worker.state == "stopping":
        return None
    failures = 1 if worker.is_proven(now) else worker.failures + 1
    return replace(worker, state="down", since=now, failures=failures, was_ready=False)


def _end(replica: Replica, worker: Worker, wanted: Mapping[Replica, str], now: float) -> Iterator[Action]:
    if worker.state == "stopping":
        if now - worker.since >= KILL_AFTER_S:
            yield Kill(replica)
    elif worker.state == "down":
        if replica not in wanted:
            yield Forget(replica)
    elif now - worker.heard_at >= SILENT_S:
        yield Kill(replica)
    elif replica not in wanted or (worker.state == "starting" and worker.version != wanted[replica]):
        yield Stop(replica)


def _may_start(worker: Worker | None, version: str, now: float) -> bool:
    """A new version may be the cure of what failed: it is tried at once."""
    return worker is None or (worker.state == "down" and (now >= worker.retry_at or worker.version != version))


def _replace_one(wanted: Mapping[Replica, str], workers: Mapping[Replica, Worker]) -> Iterator[Action]:
    """One outdated worker, if all others stand still: a class keeps its other replicas, the host its CPU.

    A class with a worker down keeps what it has left. What fails elsewhere does not hold the others back for long:
    between its attempts it is down, which is standing still.
    """
    if any(worker.state in ("starting", "stopping") for worker in workers.values()):
        return
    hurt = {replica.label for replica, worker in workers.items() if worker.state == "down"}
    for replica, version in wanted.items():
        if workers[replica].is_live and workers[replica].version != version and replica.label not in hurt:
            yield Stop(replica)
            return
