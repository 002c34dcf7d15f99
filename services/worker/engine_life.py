"""The life of an engine in this process: started, proven by a real inference, watched, healed or given up."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from schemas.base import LogTime
from schemas.fleet import CircuitState
from services.chassis.clock import LogClock
from services.chassis.logging import log
from services.worker.circuit import Circuit
from services.worker.domain.engine import FIRST_HEALTH_TIMEOUT_S, HEALTH_TIMEOUT_S, Engine, EngineEnded, Origin
from services.worker.patience import bounded

START_TIMEOUT_S = 900.0
"""Large models load for minutes."""
PROGRESS_EVERY_S = 5.0
HEALTH_EVERY_S = 10.0
"""An engine that answered nothing for so long is checked, however busy it is."""
HEAL_TIMEOUT_S = 12.0
"""The second check of an engine that failed one: without an answer it is given up 28 s after its last."""
HEAL_EVERY_S = 2.0
"""How often it is tried to heal an engine that says no, but at once: a server that is down may come back."""
GIVE_UP_S = 300.0
"""For how long; then a new process may do better."""
PATIENCE_S = 3.0
"""Tasks wait so long for an engine under suspicion; then its breaker opens."""
MAX_PAUSE_S = 10.0
SLEEP_TIMEOUT_S = 60.0
"""To write a large model into the machine's memory."""


class EngineLostError(Exception):
    """The engine cannot be healed in this process: another process must start it anew."""


class EngineLife:
    """Its tasks tell it what the engine answers; it tells them whether the engine may be given work."""

    def __init__(
        self,
        label: str,
        engine: Engine,
        clock: LogClock,
        circuit: Circuit,
        *,
        on_started: Callable[[float, Origin], None],
        monotonic: Callable[[], float] = time.monotonic,
        age_s: float = 0.0,
    ) -> None:
        """`on_started` hears how many seconds each start took, the first one from the process's, `age_s` ago."""
        self._label = label
        self._engine = engine
        self._clock = clock
        self._on_started = on_started
        self._circuit = circuit
        circuit.listen(self._on_circuit)
        self._monotonic = monotonic
        self._born = monotonic() - age_s
        self.state: Literal["starting", "warm", "asleep", "failed"] = "starting"
        self.ready_at: LogTime | None = None
        """Log time of the first health after the last start."""
        self.start_ms: float | None = None
        """What the first start took, from the process's."""
        self._changing = asyncio.Lock()
        """Held while the engine is examined, healed, put to sleep or woken."""
        self._started = asyncio.Event()
        self._suspected = asyncio.Event()
        self._pause_s = 0.0
        self._lost: str | None = None
        self._answered_at = monotonic()

    @property
    def started(self) -> bool:
        """Whether it has ever answered here."""
        return self._started.is_set()

    @property
    def available(self) -> bool:
        """Whether tasks should be taken: to be run, or, while the breaker is open, to be refused at once."""
        return self.refuses or (self.state == "warm" and not self._suspected.is_set())

    @property
    def refuses(self) -> bool:
        """Whether every task is refused: that takes no slot."""
        return self._circuit.is_open

    def answered(self) -> None:
        """The engine answered a call: it is well."""
        self._answered_at = self._monotonic()

    def suspect(self, retry_after_s: float | None) -> None:
        """A call failed for the engine's own reasons: no more work before a health check, in `retry_after_s`."""
        self._pause_s = max(self._pause_s, min(retry_after_s or 0.0, MAX_PAUSE_S))
        self._suspected.set()

    def lose(self, why: str) -> None:
        """No health check can mend it: another process must start it anew."""
        self._lost = why
        self._suspected.set()

    async def start(self, first_health_s: float = FIRST_HEALTH_TIMEOUT_S) -> None:
        """Returns when the engine has answered; raises what it raises, or TimeoutError."""
        began = self._monotonic() if self.started else self._born
        await self._rouse(self._engine.start, first_health_s)
        took_s = self._monotonic() - began
        if not self.started:
            self.start_ms = took_s * 1_000
        self._ready(took_s, "zero")

    async def sleep(self) -> None:
        """Returns when the engine has let go of its memory. A health check or a healing under way ends first."""
        async with self._changing:
            await bounded(self._engine.sleep(), SLEEP_TIMEOUT_S)
            self.state = "asleep"
        log.info("engine_asleep", queue=self._label)

    async def wake(self) -> None:
        """Returns when the engine has answered again; at once if it is awake. Raises as `start`."""
        async with self._changing:
            if self.state != "asleep":
                return
            began, self.state = self._monotonic(), "starting"
            await self._rouse(self._engine.wake, FIRST_HEALTH_TIMEOUT_S)
            self._ready(self._monotonic() - began, "asleep")
            self._cleared()

    async def _rouse(self, work: Callable[[], Awaitable[None]], first_health_s: float) -> None:
        progress = asyncio.create_task(self._tell_progress(self._monotonic()))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await work()
            await self._prove(first_health_s)
        finally:
            progress.cancel()

    def _ready(self, took_s: float, origin: Origin) -> None:
        self._on_started(took_s, origin)
        self.ready_at = self._clock.now_ms()
        self.state = "warm"
        self._started.set()
        self.answered()
        log.info("engine_ready", queue=self._label, origin=origin, took_s=round(took_s, 3))

    async def watch(self) -> None:
        """A component, at work from the first start on. Raises EngineLostError when an ill engine does not heal."""
        await self._started.wait()
        while True:
            if await self._suspicion():
                self._require_not_lost()
                await self._examine(PATIENCE_S)
            elif self._quiet_s >= HEALTH_EVERY_S:
                await self._examine(PATIENCE_S + HEALTH_TIMEOUT_S)

    def _require_not_lost(self) -> None:
        if self._lost is not None:
            self.state = "failed"
            raise EngineLostError(f"the engine of {self._label} is lost: {self._lost}")

    def _on_circuit(self, state: CircuitState) -> None:
        """What opened it is for a health check to find out; passing one is what lets probes pass."""
        if state is CircuitState.OPEN:
            self.suspect(self._circuit.pause_s)

    @property
    def _quiet_s(self) -> float:
        return self._monotonic() - self._answered_at

    async def _suspicion(self) -> bool:
        """Waits for one; False when there was none until a check may be due."""
        try:
            async with asyncio.timeout(max(0.0, HEALTH_EVERY_S - self._quiet_s)):
                await self._suspected.wait()
        except TimeoutError:
            return False
        return True

    async def _examine(self, patience_s: float) -> None:
        """A health check, after the pause that was asked for. A suspect has no work until it has passed."""
        async with self._changing:
            if self.state == "asleep":
                self.answered()  # it is not asked, and need not be before the next interval
                self._suspected.clear()
                return
            patience = asyncio.get_running_loop().call_later(patience_s, self._circuit.trip)
            try:
                await asyncio.sleep(self._pause_s)
                await self._check()
            finally:
                patience.cancel()
            self._cleared()

    def _cleared(self) -> None:
        """It has passed a check."""
        self._require_not_lost()  # which proves nothing then
        self._pause_s = 0.0
        self._suspected.clear()
        self._circuit.prove()

    async def _check(self) -> None:
        try:
            await self._prove(HEALTH_TIMEOUT_S)
        except Exception as error:
            log.warning("engine_unhealthy", queue=self._label, exc_info=error)
            await self._heal()
        self.answered()

    async def _prove(self, timeout_s: float) -> None:
        """A health check, bounded also for an engine that does not keep to its time.

        One that is too busy for it, but answers a call meanwhile, has proven as much.
        """
        began = self._monotonic()
        try:
            await bounded(self._engine.health(timeout_s), timeout_s + 1)
        except Exception:
            if self._answered_at <= began:
                raise

    async def _heal(self) -> None:
        """Starts it anew, again and again while it says no at once; one that says nothing, or has ended, is lost."""
        self.state = "starting"
        give_up_at = self._monotonic() + GIVE_UP_S
        while True:
            began = self._monotonic()
            try:
                return await self.start(HEAL_TIMEOUT_S)
            except Exception as error:
                now = self._monotonic()
                final = isinstance(error, EngineEnded)
                if final or now - began >= HEAL_TIMEOUT_S or now >= give_up_at:
                    self.state = "failed"
                    raise EngineLostError(f"the engine of {self._label} is lost: {error}") from error
            await asyncio.sleep(HEAL_EVERY_S)

    async def _tell_progress(self, began: float) -> None:
        while True:
            log.info("engine_starting", queue=self._label, after_s=round(self._monotonic() - began, 1))
            await asyncio.sleep(PROGRESS_EVERY_S)
