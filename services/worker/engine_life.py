"""The life of an engine in this process: started, proven by a real inference, watched, healed or given up."""

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from schemas.base import LogTime
from services.chassis.clock import LogClock
from services.chassis.logging import log
from services.worker.domain.engine import FIRST_HEALTH_TIMEOUT_S, HEALTH_TIMEOUT_S, Engine

START_TIMEOUT_S = 900.0
"""Large models load for minutes."""
PROGRESS_EVERY_S = 5.0
HEALTH_EVERY_S = 10.0
"""An engine that answered nothing for so long is checked, however busy it is."""
HEAL_TIMEOUT_S = 12.0
"""The second check of an engine that failed one: without an answer it is given up 28 s after its last."""
MAX_PAUSE_S = 10.0


class EngineLostError(Exception):
    """The engine cannot be healed in this process: another process must start it anew."""


class EngineLife:
    """Its tasks tell it what the engine answers; it tells them whether the engine may be given work."""

    def __init__(
        self,
        label: str,
        engine: Engine,
        clock: LogClock,
        on_started: Callable[[float], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_started` hears how many seconds each start took."""
        self._label = label
        self._engine = engine
        self._clock = clock
        self._on_started = on_started
        self._monotonic = monotonic
        self.state: Literal["starting", "warm", "failed"] = "starting"
        self.ready_at: LogTime | None = None
        """Log time of the first health after the last start."""
        self._started = asyncio.Event()
        self._suspected = asyncio.Event()
        self._pause_s = 0.0
        self._answered_at = monotonic()

    @property
    def available(self) -> bool:
        """Whether new work makes sense."""
        return self.state == "warm" and not self._suspected.is_set()

    def answered(self) -> None:
        """The engine answered a call: it is well."""
        self._answered_at = self._monotonic()

    def suspect(self, retry_after_s: float | None) -> None:
        """A call failed for the engine's own reasons: no more work before a health check, in `retry_after_s`."""
        self._pause_s = min(retry_after_s or 0.0, MAX_PAUSE_S)
        self._suspected.set()

    async def start(self, first_health_s: float = FIRST_HEALTH_TIMEOUT_S) -> None:
        """Returns when the engine has answered; raises what it raises, or TimeoutError."""
        began = self._monotonic()
        progress = asyncio.create_task(self._tell_progress(began))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._engine.start()
            await self._prove(first_health_s)
        finally:
            progress.cancel()
        took_s = self._monotonic() - began
        self._on_started(took_s)
        self.ready_at = self._clock.now_ms()
        self.state = "warm"
        self._started.set()
        self.answered()
        log.info("engine_ready", queue=self._label, took_s=round(took_s, 3))

    async def watch(self) -> None:
        """A component, at work from the first start on. Raises EngineLostError when an ill engine does not heal."""
        await self._started.wait()
        while True:
            if await self._suspicion() or self._quiet_s >= HEALTH_EVERY_S:
                await self._check()
            self._suspected.clear()

    @property
    def _quiet_s(self) -> float:
        return self._monotonic() - self._answered_at

    async def _suspicion(self) -> bool:
        """Waits for one, and for the pause it asked for; False when there was none until a check may be due."""
        try:
            async with asyncio.timeout(max(0.0, HEALTH_EVERY_S - self._quiet_s)):
                await self._suspected.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(self._pause_s)
        return True

    async def _check(self) -> None:
        try:
            await self._prove(HEALTH_TIMEOUT_S)
        except Exception as error:
            log.warning("engine_unhealthy", queue=self._label, exc_info=error)
            await self._heal()
        self.answered()

    async def _prove(self, timeout_s: float) -> None:
        """A health check, bounded also for an engine that does not keep to its time."""
        async with asyncio.timeout(timeout_s + 1):
            await self._engine.health(timeout_s)

    async def _heal(self) -> None:
        self.state = "starting"
        try:
            await self.start(HEAL_TIMEOUT_S)
        except Exception as error:
            self.state = "failed"
            raise EngineLostError(f"the engine of {self._label} is lost: {error}") from error

    async def _tell_progress(self, began: float) -> None:
        while True:
            log.info("engine_starting", queue=self._label, after_s=round(self._monotonic() - began, 1))
            await asyncio.sleep(PROGRESS_EVERY_S)
