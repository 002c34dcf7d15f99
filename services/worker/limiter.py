"""Lets the slots of a queue follow what its engine can take, as it says itself, or shows by refusing calls."""

import asyncio
import math
import time
from collections.abc import Callable

from services.chassis.logging import log
from services.worker.domain.engine import Engine, Load, Measured
from services.worker.domain.slot_limit import LOOK_EVERY_S, SlotLimit
from services.worker.domain.slots import Slots
from services.worker.patience import bounded

MEASURE_TIMEOUT_S = 1.0
SELDOM_S = 60.0
"""How often what does not say its load is asked again: it may have become another one."""


class Limiter:
    """One for each queue. It asks beside the tasks, and only while some run."""

    def __init__(
        self, label: str, engine: Engine, slots: Slots, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`slots`: as many as are configured."""
        self._label = label
        self._engine = engine
        self._slots = slots
        self._limit = SlotLimit(slots.total)
        self._monotonic = monotonic
        self._ask_at = -math.inf

    def refused(self) -> None:
        """The engine has refused a call because it has too many."""
        self._limit.refused(self._slots.busy)
        self._apply(None)

    async def keep(self) -> None:
        """A component."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Once."""
        load = await self._load() if self._slots.busy and self._monotonic() >= self._ask_at else None
        self._limit.look(self._slots.busy, load, wants_more=self._slots.wanting)
        self._apply(load)

    async def _load(self) -> Load | None:
        """None where it is not known."""
        if not isinstance(self._engine, Measured):
            return None
        try:
            load = await bounded(self._engine.measure(), MEASURE_TIMEOUT_S)
        except Exception as error:  # whatever is wrong with it, its calls and its health checks will tell
            log.debug("engine_not_measured", queue=self._label, exc_info=error)
            return None
        if load is None:
            self._ask_at = self._monotonic() + SELDOM_S
        return load

    def _apply(self, load: Load | None) -> None:
        before, now = self._slots.total, self._limit.usable
        self._slots.total = now
        if now < before:
            log.info("slots_lowered", queue=self._label, before=before, now=now, load=load and load._asdict())
