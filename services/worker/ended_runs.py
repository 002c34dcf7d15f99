"""Runs that are over, as this worker has heard: their queued tasks are dropped, their running ones stopped."""

from collections import OrderedDict
from collections.abc import Callable

from services.worker.domain.ports import DeadRuns

REMEMBERED = 10_000
"""Enough for the tasks queued here; what was forgotten is still known to the claims."""


class EndedRuns:
    """The newest of them, and who wants to know at once."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, None] = OrderedDict()
        self._listeners: list[Callable[[str], None]] = []

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def listen(self, on_ended: Callable[[str], None]) -> None:
        """Calls it with every run that ends from now on."""
        self._listeners.append(on_ended)

    def add(self, run_id: str) -> None:
        """This run is over."""
        self._runs[run_id] = None
        if len(self._runs) > REMEMBERED:
            self._runs.popitem(last=False)
        for on_ended in self._listeners:
            on_ended(run_id)

    async def follow(self, feed: DeadRuns) -> None:
        """A component."""
        async for run_id in feed.follow():
            self.add(run_id)
