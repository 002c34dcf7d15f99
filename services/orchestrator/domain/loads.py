"""How long a task would wait on a backend: what it has to do, and what works at it, as far as this process knows.

Workers speak every few seconds. What was sent since is counted; what was done since is reckoned from their pace, so
that a backend which is merely busy is not taken for one that falls behind. Times are the log's, in milliseconds.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from schemas.base import LANE_WEIGHTS, LogTime, Priority, reserved_slots
from schemas.fleet import WorkerStatus
from services.orchestrator.domain.backends import predicted_wait_s
from services.orchestrator.domain.starts import Starts

SILENT_MS = 3_000
"""Workers speak as often. What one that is silent for longer has done since is not guessed: it may be dead."""

NOTICED_S = 2.0
"""A task that waits where no worker is is seen by the autoscaler so soon, and a host has heard of it."""
ASSUMED_START_S = 10.0
"""Of a worker of which no start was ever seen: a task that would be late anyway goes there, and shows it."""

Stamped = tuple[LogTime, WorkerStatus]


class Prospect(NamedTuple):
    """The worker that the autoscaler would have started."""

    start_s: float | None
    """None: it never saw one start."""
    slots: int


def ahead(lane: Priority, outstanding: Mapping[Priority, float]) -> float:
    """Tasks that are taken before one that comes now: its lane's, and as many of others as weights let pass by.

    Lanes with work share the slots by weight, as in generalized processor sharing (Parekh and Gallager 1993).
    """
    turns = (outstanding[lane] + 1) / LANE_WEIGHTS[lane]
    others = (min(tasks, LANE_WEIGHTS[of] * turns) for of, tasks in outstanding.items() if of is not lane)
    return outstanding[lane] + sum(others)


class Load:
    """Of one backend. Its workers are looked at a few times a second, and each task given to it is counted."""

    def __init__(self) -> None:
        self.service_s = 0.0
        """As last heard. A backend that never did a task counts as quick: else nobody would give it the first."""
        self.is_staffed = False
        """A worker is there, or starts."""
        self._slots = dict.fromkeys(Priority, 0)
        """That a lane may use."""
        self._ready_in_s: float | None = None
        self._starts = Starts()
        self._asked_at: LogTime | None = None
        """When it was given a task without having a worker; it has had none since."""
        self._ahead = dict.fromkeys(Priority, 0.0)
        self._done = dict.fromkeys(Priority, 0.0)
        """Of what is outstanding by the workers' last word: reckoned to be done since."""
        self._looked_at: LogTime | None = None

    def look(
        self,
        workers: Sequence[Stamped],
        outstanding: Mapping[Priority, float],
        now: LogTime,
        prospect: Prospect | None = None,
    ) -> None:
        """`workers` as they spoke last; `outstanding` by their words and by what was sent.

        `prospect`: what would be started if none were there; None where nobody would start anything.
        """
        self._starts.heard(workers)
        warm = [(at, worker) for at, worker in workers if worker.state == "warm"]
        working = warm or [(at, worker) for at, worker in workers if worker.state == "starting"]
        self.is_staffed = bool(working)
        self._asked_at = None if working else self._asked_at
        slots = [worker.slots for _, worker in working] or [prospect.slots if prospect else 0]
        self._slots = {lane: sum(_usable(each, lane) for each in slots) for lane in Priority}
        self._ready_in_s = 0.0 if warm else self._start_s(prospect, now)
        told_ms = [worker.service_ms for _, worker in workers if worker.service_ms is not None]
        self.service_s = fmean(told_ms) / 1_000 if told_ms else self.service_s
        self._reckon(warm, outstanding, now)

    def given(self, lane: Priority) -> None:
        """One task more."""
        self._ahead[lane] += 1
        if not self.is_staffed and self._asked_at is None:
            self._asked_at = self._looked_at

    def wait_s(self, lane: Priority) -> float | None:
        """Until a task of this lane is taken; None when nobody can tell."""
        return predicted_wait_s(self._ahead[lane], self.service_s, self._slots[lane], self._ready_in_s)

    def _start_s(self, prospect: Prospect | None, now: LogTime) -> float | None:
        """Until a worker is ready; None where none starts or would, or where that takes longer than usual."""
        told_s = prospect.start_s if prospect else None
        if self.is_staffed:
            return self._starts.ready_in_s(now, told_s)
        if prospect is None:
            return None
        usual_s = self._starts.usual_s(slept=self._starts.has_sleepers, told_s=told_s)
        waited_s = 0.0 if self._asked_at is None else (now - self._asked_at) / 1_000
        left_s = NOTICED_S + (ASSUMED_START_S if usual_s is None else usual_s) - waited_s
        return left_s if left_s >= 0 else None

    def _reckon(self, warm: Sequence[Stamped], outstanding: Mapping[Priority, float], now: LogTime) -> None:
        """At most as much is done as time has passed since the last look, and since each worker spoke."""
        since, self._looked_at = self._looked_at or now, now
        task_ms = self.service_s * 1_000
        for lane in Priority:
            told = ahead(lane, outstanding)
            slots = [(at, _usable(worker.slots, lane)) for at, worker in warm]
            unspoken = sum(count * min(max(0, now - at), SILENT_MS) for at, count in slots)
            could = min(self._done[lane] * task_ms + sum(count for _, count in slots) * max(0, now - since), unspoken)
            self._done[lane] = min(told, could / task_ms) if task_ms else 0.0
            self._ahead[lane] = told - self._done[lane]


def _usable(slots: int, lane: Priority) -> int:
    return slots if lane is Priority.INTERACTIVE else slots - reserved_slots(slots)
