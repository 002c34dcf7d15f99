"""How long a task would wait on a backend: what it has to do, and what works at it, as far as this process knows.

Workers speak every few seconds. What was sent since is counted; what was done since is reckoned from their pace, so
that a backend which is merely busy is not taken for one that falls behind. Times are the log's, in milliseconds.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from schemas.base import LANE_WEIGHTS, LogTime, Priority, reserved_slots
from schemas.fleet import WorkerStatus
from services.orchestrator.domain.backends import predicted_wait_s
from services.orchestrator.domain.starts import Starts

SILENT_MS = 3_000
"""Workers speak as often. What one that is silent for longer has done since is not guessed: it may be dead."""

Stamped = tuple[LogTime, WorkerStatus]


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
        self._slots = dict.fromkeys(Priority, 0)
        """That a lane may use."""
        self._ready_in_s: float | None = None
        self._starts = Starts()
        self._ahead = dict.fromkeys(Priority, 0.0)
        self._done = dict.fromkeys(Priority, 0.0)
        """Of what is outstanding by the workers' last word: reckoned to be done since."""
        self._looked_at: LogTime | None = None

    def look(self, workers: Sequence[Stamped], outstanding: Mapping[Priority, float], now: LogTime) -> None:
        """`workers` as they spoke last; `outstanding` by their words and by what was sent."""
        self._starts.heard(workers)
        warm = [(at, worker) for at, worker in workers if worker.state == "warm"]
        working = warm or [(at, worker) for at, worker in workers if worker.state == "starting"]
        self._slots = {lane: sum(_usable(worker.slots, lane) for _, worker in working) for lane in Priority}
        self._ready_in_s = 0.0 if warm else self._starts.ready_in_s(now)
        told_ms = [worker.service_ms for _, worker in workers if worker.service_ms is not None]
        self.service_s = fmean(told_ms) / 1_000 if told_ms else self.service_s
        self._reckon(warm, outstanding, now)

    def given(self, lane: Priority) -> None:
        """One task more."""
        self._ahead[lane] += 1

    def wait_s(self, lane: Priority) -> float | None:
        """Until a task of this lane is taken; None when nobody can tell."""
        return predicted_wait_s(self._ahead[lane], self.service_s, self._slots[lane], self._ready_in_s)

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
