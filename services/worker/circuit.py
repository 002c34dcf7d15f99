"""One queue's circuit breaker at work: it has a clock, and tells when its state changes."""

import asyncio
import time
from collections.abc import Callable

from schemas.fleet import CircuitState
from schemas.models import BreakerRules
from services.worker.domain.breaker import TICK_S, Breaker, Tally, Trial


class Circuit:
    """Its tasks ask it whether they may run, and tell it what became of them."""

    def __init__(self, rules: BreakerRules, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._breaker = Breaker(rules, monotonic())
        self._told = self._breaker.state
        self._listeners: list[Callable[[CircuitState], None]] = []
        self.pause_s = rules.pause / 1_000
        """For how long an engine is left in peace after the breaker has opened."""

    @property
    def state(self) -> CircuitState:
        """Closed, open or half-open."""
        return self._breaker.state

    @property
    def is_open(self) -> bool:
        """Every task is refused."""
        return self.state is CircuitState.OPEN

    @property
    def is_half_open(self) -> bool:
        """Only probes pass."""
        return self.state is CircuitState.HALF_OPEN

    def listen(self, hear: Callable[[CircuitState], None]) -> None:
        """`hear` is called with every new state, in the order of asking."""
        self._listeners.append(hear)

    def room(self, wanted: int) -> int:
        """How many of so many tasks may begin now."""
        return self._breaker.room(wanted)

    def begin(self, tasks: int) -> Trial:
        """So many tasks go to the engine together."""
        return self._breaker.begin(tasks, self._monotonic())

    def end(self, trial: Trial, tally: Tally) -> None:
        """They came back, or were stopped."""
        self._breaker.end(trial, tally, self._monotonic())

    def trip(self) -> None:
        """The engine is ill, whatever its calls say."""
        self._breaker.trip(self._monotonic())
        self._tell()

    def prove(self) -> None:
        """The engine has answered a health check."""
        self._breaker.prove(self._monotonic())
        self._tell()

    async def keep(self) -> None:
        """A component: lets time pass."""
        while True:
            await asyncio.sleep(TICK_S)
            self._breaker.pass_time(self._monotonic())
            self._tell()

    def _tell(self) -> None:
        if self._told is not self.state:
            self._told = self.state
            for hear in self._listeners:
                hear(self.state)
