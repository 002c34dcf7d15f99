"""When which run needs a tick: an index over the fold's state, rebuilt from it at every assignment."""

from heapq import heapify, heappop, heappush

REPEAT_MS = 2_000
"""A tick that changed nothing (lost, or stamped too early) is sent again after this."""
SLACK = 1_000


class Timers:
    """The next timer of each open run of one partition."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._due: dict[str, int] = {}

    def schedule(self, run_id: str, due: int | None) -> None:
        """The run's next timer is at log time `due`, replacing what was; None: it has no more."""
        if due is None:
            self._due.pop(run_id, None)
            self._compact()
        elif self._due.get(run_id) != due:
            self._due[run_id] = due
            heappush(self._heap, (due, run_id))

    @property
    def size(self) -> int:
        """Entries held, those of ended runs included."""
        return len(self._heap)

    def _compact(self) -> None:
        """Drops what is no longer due once it is most of the heap: a run may end long before its deadline."""
        if len(self._heap) > 2 * len(self._due) + SLACK:
            self._heap = [(due, run_id) for run_id, due in self._due.items()]
            heapify(self._heap)

    def pop_due(self, now: int, limit: int) -> list[str]:
        """At most `limit` runs whose timer is due at log time `now`; each comes again later unless rescheduled."""
        runs: list[str] = []
        while self._heap and self._heap[0][0] <= now and len(runs) < limit:
            due, run_id = heappop(self._heap)
            if self._due.get(run_id) == due:
                runs.append(run_id)
                # At once: a run that went back to a time it had before is in the heap twice.
                self.schedule(run_id, now + REPEAT_MS)
        return runs
