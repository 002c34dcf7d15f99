"""The workers of one class in virtual time, the queue before them, and what both have cost and done."""

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from loadtest.virtual.calendar import Calendar
from loadtest.virtual.model import ASLEEP_SHARE, Model
from loadtest.virtual.replica import Replica, State

HOUR_S = 3_600.0
NOTICED_S = 1.0
"""What a call waits for less has no cause worth a name: workers are busy by chance, too."""


class Task(NamedTuple):
    """A call, and what to do when it is done."""

    at_s: float
    done: Callable[[], None]
    while_loading: bool
    """When it came, no slot was free, and a worker was loading its model."""


@dataclass(slots=True)
class Tally:
    """What has happened so far."""

    tasks: int = 0
    colds: int = 0
    """Tasks that waited for a second or more, and for a worker that was loading its model."""
    wakes: int = 0
    """Tasks that waited for one that woke."""
    cold_s: float = 0.0
    """All the time that these waited."""
    wait_s: list[float] = field(default_factory=list)
    """Of each task, from its arrival to its start."""
    replica_s: defaultdict[State, float] = field(default_factory=lambda: defaultdict(float))
    """By state."""

    def usd(self, per_hour: float, asleep_share: float) -> float:
        """What the workers have cost: starting and draining ones as much as warm ones."""
        up_s = self.replica_s["starting"] + self.replica_s["warm"] + self.replica_s["draining"]
        return per_hour / HOUR_S * (up_s + asleep_share * self.replica_s["asleep"])


class Pool:
    """Tasks are taken in the order in which they came, by whichever worker has a slot."""

    def __init__(self, model: Model, calendar: Calendar, dice: random.Random) -> None:
        self.model = model
        self.replicas: list[Replica] = []
        self.tally = Tally()
        self.arrived = 0
        self.usual_service_s: float | None = None
        self._calendar = calendar
        self._dice = dice
        self._queue: deque[Task] = deque()
        self._free: list[Replica] = []
        """A worker for each of its free slots."""

    @property
    def outstanding(self) -> int:
        """Tasks queued and in flight."""
        return len(self._queue) + self.busy

    @property
    def busy(self) -> int:
        """Slots."""
        return sum(replica.busy for replica in self.replicas)

    def count(self, state: State) -> int:
        """Workers in a state."""
        return sum(replica.state == state for replica in self.replicas)

    def submit(self, done: Callable[[], None]) -> None:
        """A task has come."""
        self.arrived += 1
        self._queue.append(Task(self._calendar.now_s, done, not self._free and self._is_loading()))
        self._take()

    def put(self, host: str, state: State) -> None:
        """A worker that is there before anything happens."""
        replica = Replica(host, state, self._calendar.now_s)
        self.replicas.append(replica)
        self._free += [replica] * (self.model.slots if state == "warm" else 0)

    def start(self, host: str, *, sleeps_next: bool = False) -> None:
        """A worker loads its model."""
        replica = Replica(host, "starting", self._calendar.now_s, sleeps_next=sleeps_next)
        self.replicas.append(replica)
        self._calendar.after(self.model.load_s, partial(self._ready, replica))

    def wake(self, replica: Replica) -> None:
        """A sleeping worker wakes."""
        self._become(replica, "starting")
        replica.woken, replica.sleeps_next = True, False
        self._calendar.after(self.model.wake_s, partial(self._ready, replica))

    def retire(self, replica: Replica, *, sleeps_next: bool = False) -> None:
        """A worker takes nothing more, and ends or falls asleep when it has nothing in flight."""
        replica.sleeps_next = sleeps_next
        if replica.state == "starting" and sleeps_next:
            return
        self._leave(replica, "draining")
        if not replica.busy:
            self._drained(replica)

    def lose(self, replica: Replica) -> None:
        """A worker dies. What it had in flight is done again, by others, when it would have been done."""
        self._leave(replica, "gone")
        self.replicas.remove(replica)

    def settle(self) -> None:
        """Counts the time up to now."""
        for replica in self.replicas:
            self._become(replica, replica.state)

    def _is_loading(self) -> bool:
        return any(replica.state == "starting" and not replica.woken for replica in self.replicas)

    def _ready(self, replica: Replica) -> None:
        if replica.state != "starting":
            return
        replica.ready_s = self._calendar.now_s
        if replica.sleeps_next:
            self._become(replica, "asleep")
            return
        self._become(replica, "warm")
        self._free += [replica] * self.model.slots
        self._take()

    def _take(self) -> None:
        while self._queue and self._free:
            self._begin(self._queue.popleft(), self._free.pop())

    def _begin(self, task: Task, replica: Replica) -> None:
        now_s = self._calendar.now_s
        replica.busy += 1
        self._count(task, replica, now_s)
        service_s = self.model.draw_s(self._dice)
        self.usual_service_s = 0.99 * (self.usual_service_s or self.model.service_s) + 0.01 * service_s
        self._calendar.at(now_s + service_s, partial(self._end, task, replica))

    def _count(self, task: Task, replica: Replica, now_s: float) -> None:
        tally = self.tally
        tally.tasks += 1
        waited_s = now_s - task.at_s
        tally.wait_s.append(waited_s)
        if waited_s < NOTICED_S or not (task.while_loading or task.at_s < replica.ready_s):
            return
        tally.cold_s += waited_s
        if task.while_loading or not replica.woken:
            tally.colds += 1
        else:
            tally.wakes += 1

    def _end(self, task: Task, replica: Replica) -> None:
        if replica.state == "gone":
            self._queue.appendleft(task)
            self._take()
            return
        replica.busy -= 1
        if replica.state == "warm":
            self._free.append(replica)
            self._take()
        elif not replica.busy:
            self._drained(replica)
        task.done()

    def _drained(self, replica: Replica) -> None:
        if replica.sleeps_next:
            self._become(replica, "asleep")
        else:
            self._become(replica, "gone")
            self.replicas.remove(replica)

    def _leave(self, replica: Replica, state: State) -> None:
        self._become(replica, state)
        self._free = [free for free in self._free if free is not replica]

    def _become(self, replica: Replica, state: State) -> None:
        now_s = self._calendar.now_s
        self.tally.replica_s[replica.state] += now_s - replica.since_s
        replica.state, replica.since_s = state, now_s


def usd(pool: Pool, asleep_share: float = ASLEEP_SHARE) -> float:
    """What a pool's workers have cost up to now."""
    pool.settle()
    return pool.tally.usd(pool.model.usd_per_hour, asleep_share)
