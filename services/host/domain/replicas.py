"""Which worker processes a host starts and stops: what is wanted, against what runs.

A worker that a new configuration makes outdated works on until its heir is ready beside it; then it takes nothing
new, ends the tasks that it has, and goes. Where the machine has no room for both, it goes first.

Time is monotonic seconds, an argument.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 10.0
PROVEN_S = 30.0
"""A worker that got ready and lived so long is started again as if it had never failed."""
FAILING_AFTER = 3
"""Failures in a row: something is wrong with the queue's workers on this machine."""
STUCK_S = 300.0
"""So is it with one that is not ready by then. It may still become so: large models load for minutes."""
UNBOUNDED = 1_000_000
KILL_AFTER_S = 8.0
"""From SIGTERM: what has not drained by then is killed."""
BOOT_S = 1.0
"""A worker that is not ready yet computes: it imports, and its engine begins. What takes longer than this waits for a
disk or for a GPU, or has a core for itself anyway: it holds up nobody."""
SILENT_S = 60.0
"""A worker whose side door does not answer for so long is wedged, and killed."""

State = Literal["starting", "ready", "dozing", "asleep", "stopping", "down"]
"""Dozing: told to sleep, and its tasks end first."""
Answer = Literal["ready", "asleep", "neither"]
"""What its side door says."""


class Replica(NamedTuple):
    """One worker: `embedding` 0, of this version. While it is replaced, another version has the same place."""

    label: str
    """Of its queue: `class`, or `class.backend` for a further backend."""
    number: int
    version: str = ""
    """The definition of its queue."""

    @property
    def name(self) -> str:
        return f"{self.label}-{self.number}"

    @property
    def place(self) -> tuple[str, int]:
        """Where at most one is wanted."""
        return self.label, self.number


@dataclass(frozen=True, slots=True)
class Worker:
    """A process, or the memory of one that failed."""

    state: State
    since: float
    """When it was started, told to stop, or found dead."""
    heard_at: float
    """When its side door last answered, ready or not."""
    failures: int = 0
    """In a row."""
    was_ready: bool = False
    """Since it was started: its engine has worked, and it listens to signals."""

    @property
    def is_live(self) -> bool:
        return self.state not in ("stopping", "down")

    @property
    def serves(self) -> bool:
        """Takes tasks, but for a moment in which its engine is not well."""
        return self.was_ready and self.state in ("ready", "starting")

    def is_booting(self, now: float) -> bool:
        """Whether it still takes a core for itself."""
        return self.state == "starting" and not self.was_ready and now - self.since < BOOT_S

    def is_failing(self, now: float) -> bool:
        """Whether the queue's workers should rather be somewhere else: until this one has proven itself."""
        is_stuck = self.state == "starting" and not self.was_ready and now - self.since >= STUCK_S
        return is_stuck or (self.failures >= FAILING_AFTER and not self.is_proven(now))

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
    asleep: bool = False


class Sleep(NamedTuple):
    """Ask a worker to end its tasks, however long they take, and then to sleep."""

    replica: Replica


class Wake(NamedTuple):
    """Ask a worker to work again."""

    replica: Replica


class Stop(NamedTuple):
    """Ask a worker to drain within seconds, and end."""

    replica: Replica


class Kill(NamedTuple):
    """End a worker that does not end by itself."""

    replica: Replica


class Forget(NamedTuple):
    """Nothing runs there, and nothing should."""

    replica: Replica


Action = Start | Sleep | Wake | Stop | Kill | Forget


def decide(
    wanted: Collection[Replica],
    workers: Mapping[Replica, Worker],
    now: float,
    asleep: Collection[Replica] = (),
    *,
    cores: int = UNBOUNDED,
    full_for: Collection[str] = (),
) -> list[Action]:
    """What to do now. `asleep`: which of the wanted are to sleep; `full_for`: labels of queues that find no room here
    for one worker more.

    No more than `cores` boot at once: else the one that is needed first is ready as late as the last. Asked again and
    again; repeats do no harm.
    """
    held = _held(wanted, workers, asleep)
    kept = {*wanted, *held}
    actions = [
        action for replica, worker in workers.items() for action in _change(replica, worker, kept, asleep, now)
    ]
    room = cores - sum(worker.is_booting(now) for worker in workers.values())
    due = [replica for replica in wanted if _may_start(replica, workers, now)]
    actions += [Start(replica, replica in asleep) for replica in due[: max(0, room)]]
    if not actions and not due:
        absent = [replica for replica in wanted if replica not in workers]
        actions.extend(_replace_one(absent, workers, held, asleep, full_for))
    return actions


def heard(worker: Worker, now: float, answer: Answer) -> Worker:
    """A live worker whose side door has answered."""
    if answer != "neither":
        return replace(worker, state=answer, heard_at=now, was_ready=True)
    return replace(worker, state="dozing" if worker.state == "dozing" else "starting", heard_at=now)


def after_exit(worker: Worker, now: float) -> Worker | None:
    """What is at a place whose process has ended: nothing if it was asked to, else one more failure."""
    if worker.state == "stopping":
        return None
    failures = 1 if worker.is_proven(now) else worker.failures + 1
    return replace(worker, state="down", since=now, failures=failures, was_ready=False)


def _held(
    wanted: Collection[Replica], workers: Mapping[Replica, Worker], asleep: Collection[Replica]
) -> set[Replica]:
    """Outdated workers whose heirs are to work, and are not ready yet."""
    ready = {replica for replica, worker in workers.items() if worker.state == "ready"}
    unmanned = {replica.place for replica in wanted if replica not in asleep and replica not in ready}
    serving = (replica for replica, worker in workers.items() if worker.serves)
    return {replica for replica in serving if replica.place in unmanned and replica not in wanted}


def _change(
    replica: Replica, worker: Worker, kept: Collection[Replica], asleep: Collection[Replica], now: float
) -> Iterator[Action]:
    if worker.state == "stopping":
        if now - worker.since >= KILL_AFTER_S:
            yield Kill(replica)
    elif worker.state == "down":
        if replica not in kept:
            yield Forget(replica)
    elif now - worker.heard_at >= SILENT_S:
        yield Kill(replica)
    elif replica in kept:
        yield from _settle(replica, worker, sleeps=replica in asleep)
    else:
        yield from _retire(replica, worker)


def _settle(replica: Replica, worker: Worker, *, sleeps: bool) -> Iterator[Action]:
    if sleeps and worker.state == "ready":
        yield Sleep(replica)
    elif not sleeps and worker.state in ("dozing", "asleep"):
        yield Wake(replica)


def _retire(replica: Replica, worker: Worker) -> Iterator[Action]:
    """One with tasks falls asleep first: they end as they would, while others go on with what waits."""
    if worker.state == "asleep" or not worker.was_ready:
        yield Stop(replica)
    elif worker.state != "dozing":
        yield Sleep(replica)


def _may_start(replica: Replica, workers: Mapping[Replica, Worker], now: float) -> bool:
    """Where nothing runs: what failed waits, but not a new version, which may be the cure."""
    worker = workers.get(replica)
    if worker is not None:
        return worker.state == "down" and now >= worker.retry_at
    return all(its.state == "down" for other, its in workers.items() if other.place == replica.place)


def _replace_one(
    absent: Collection[Replica],
    workers: Mapping[Replica, Worker],
    held: Collection[Replica],
    asleep: Collection[Replica],
    full_for: Collection[str],
) -> Iterator[Action]:
    """If all others stand still one heir is started, or where it has no room, one outdated worker is told to go: a
    class keeps its other replicas, the host its CPU.

    A class of which a worker is missing keeps what it has left. What fails elsewhere does not hold the others back
    for long: between its attempts it is down, which is standing still.
    """
    if any(worker.state in ("starting", "stopping") for worker in workers.values()):
        return
    outdated = {replica.place: replica for replica in held}
    hurt = {replica.label for replica, worker in workers.items() if worker.state == "down"}
    hurt.update(replica.label for replica in absent if replica.label in full_for and replica.place not in outdated)
    for replica in absent:
        if replica.label not in hurt:
            yield Sleep(outdated[replica.place]) if replica.label in full_for else Start(replica, replica in asleep)
            return
