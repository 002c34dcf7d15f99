"""The gate before admission: requests wait in their topic until somebody says how full the plane is."""

import asyncio
from collections.abc import Callable, Sequence

from schemas.base import Priority
from schemas.errors import ErrorCode, ErrorDetail
from schemas.events import RunStarted
from schemas.metrics import REQUESTS_SHED_TOTAL
from services.chassis.clock import LogClock
from services.chassis.logging import log
from services.chassis.metrics import Metrics
from services.orchestrator.domain.door import Announcement, Door

LOOK_AGAIN_S = 0.05


class Gate:
    """Shut while open runs are not announced: nobody is refused for that, and nobody let in blindly.

    Open, it asks the door about every run.
    """

    def __init__(
        self, announced: Callable[[], Sequence[Announcement]], door: Door, clock: LogClock, metrics: Metrics
    ) -> None:
        """`announced` gives the live announcements in log order."""
        self._announced = announced
        self._door = door
        self._clock = clock
        self._shed = metrics.counter(REQUESTS_SHED_TOTAL, known=[(priority,) for priority in Priority])

    async def opened(self) -> None:
        """Returns at once while open runs are announced; else when they are again."""
        if self._door.read(self._announced()):
            return
        log.warning("admission_waits", why="open runs are not announced for every partition of the events topic")
        while not self._door.read(self._announced()):  # noqa: ASYNC110  what is announced expires, without an event
            await asyncio.sleep(LOOK_AGAIN_S)
        log.info("admission_goes_on", open_runs=self._door.open_runs)

    def refusal(self, started: RunStarted) -> ErrorDetail | None:
        """Why a run must not start now; None lets it in."""
        retry_after_ms = self._door.admit(started.priority, started.run_id, self._clock.now_ms() or 0)
        if retry_after_ms is None:
            return None
        self._shed.labels(started.priority).inc()
        return ErrorDetail(
            code=ErrorCode.OVERLOADED,
            message=f"{self._door.open_runs} runs are open, too many for another {started.priority} one (at most"
            f" {self._door.max_open_runs} in all); send it again later, under a new `request_id`",
            retryable=True,
            retry_after_ms=retry_after_ms,
        )

    def withdraw(self) -> None:
        """A run that was just let in does not start after all: it takes nobody's place."""
        self._door.withdraw()
