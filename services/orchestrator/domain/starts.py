"""When a worker that starts will be ready: as long after its first word as the last one took. Pure."""

from collections.abc import Sequence

from schemas.base import LogTime
from schemas.fleet import WorkerStatus


class Starts:
    """Of one backend's workers. Times are the log's, in milliseconds."""

    def __init__(self) -> None:
        self._began: dict[str, LogTime] = {}
        self._took_ms: int | None = None

    def heard(self, workers: Sequence[tuple[LogTime, WorkerStatus]]) -> None:
        """The workers as they spoke last."""
        for at, worker in workers:
            began = self._began.get(worker.instance)
            if worker.state == "warm" and began is not None:
                self._took_ms = max(0, (worker.ready_at or at) - began)
        self._began = {
            worker.instance: self._began.get(worker.instance, at)
            for at, worker in workers
            if worker.state == "starting"
        }

    def ready_in_s(self, now: LogTime) -> float | None:
        """The first of them; None when none starts, none was ever seen to, or each takes longer than the last did."""
        if self._took_ms is None:
            return None
        left_ms = [began + self._took_ms - now for began in self._began.values()]
        return min((left / 1_000 for left in left_ms if left >= 0), default=None)
