"""When a worker that starts will be ready: as long after its first word as the last one took. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.base import LogTime
from schemas.fleet import WorkerStatus


class _Began(NamedTuple):
    at: LogTime
    slept: bool


class Starts:
    """Of one backend's workers; those that wake take another time. Times are the log's, in milliseconds."""

    def __init__(self) -> None:
        self._began: dict[str, _Began] = {}
        self._asleep: frozenset[str] = frozenset()
        self._took_ms: dict[bool, int] = {}
        """By whether the worker slept before."""

    @property
    def has_sleepers(self) -> bool:
        """Whether a worker sleeps, and would wake."""
        return bool(self._asleep)

    def heard(self, workers: Sequence[tuple[LogTime, WorkerStatus]]) -> None:
        """The workers as they spoke last."""
        for at, worker in workers:
            began = self._began.get(worker.instance)
            if worker.state == "warm" and began is not None:
                self._took_ms[began.slept] = max(0, (worker.ready_at or at) - began.at)
        self._began = {
            worker.instance: self._began.get(worker.instance) or _Began(at, worker.instance in self._asleep)
            for at, worker in workers
            if worker.state == "starting"
        }
        self._asleep = frozenset(worker.instance for _, worker in workers if worker.state == "asleep")

    def usual_s(self, *, slept: bool, told_s: float | None = None) -> float | None:
        """As the last one took: no wake-up takes longer than a start. Where none was seen, as is told by others."""
        took_ms = self._took_ms.get(slept, self._took_ms.get(False))
        return told_s if took_ms is None else took_ms / 1_000

    def ready_in_s(self, now: LogTime, told_s: float | None = None) -> float | None:
        """The first of them; None when none starts, none was ever seen to, or each takes longer than is usual."""
        waits = [(began, self.usual_s(slept=began.slept, told_s=told_s)) for began in self._began.values()]
        left = [usual_s - (now - began.at) / 1_000 for began, usual_s in waits if usual_s is not None]
        return min((left_s for left_s in left if left_s >= 0), default=None)
