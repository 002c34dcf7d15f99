"""Runs that are over, as this worker has heard: their queued tasks are dropped, their running ones stopped."""

import time
from collections import OrderedDict
from collections.abc import Callable

from schemas.base import LogTime
from schemas.redis_keys import DEAD_RUN_TTL_S, EndedRun
from services.worker.domain.ports import DeadRuns

REMEMBERED = 10_000
"""Enough for the tasks queued here; what was forgotten is still known to the claims."""


class EndedRuns:
    """The newest of them, for as long as a task of theirs could run, and who wants to know at once."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._runs: OrderedDict[str, tuple[LogTime, float]] = OrderedDict()
        """The deadline of each, and when its end was heard; what was heard last stands last."""
        self._listeners: list[Callable[[EndedRun], None]] = []

    def __len__(self) -> int:
        return len(self._runs)

    def covers(self, run_id: str, deadline_at: LogTime) -> bool:
        """Whether the life of a run id that has this deadline is over."""
        ended = self._runs.get(run_id)
        return ended is not None and ended[0] == deadline_at

    def listen(self, on_ended: Callable[[EndedRun], None]) -> None:
        """Calls it with every run that ends from now on."""
        self._listeners.append(on_ended)

    def add(self, run: EndedRun) -> None:
        """This run is over."""
        now = self._monotonic()
        self._runs[run.run_id] = (run.deadline_at, now)
        self._runs.move_to_end(run.run_id)
        self._forget(now)
        for on_ended in self._listeners:
            on_ended(run)

    async def follow(self, feed: DeadRuns) -> None:
        """A component."""
        async for run in feed.follow():
            self.add(run)

    def _forget(self, now: float) -> None:
        while len(self._runs) > REMEMBERED or self._oldest_heard_at() < now - DEAD_RUN_TTL_S:
            self._runs.popitem(last=False)

    def _oldest_heard_at(self) -> float:
        _, heard_at = next(iter(self._runs.values()))
        return heard_at
