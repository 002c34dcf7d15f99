"""Who runs beside whom on one worker process: everybody together, until a suspect has it to itself.

A task whose holders died is suspected of killing them. It runs alone, so that if it dies again nobody else can have
done it, and nobody else dies with it. While a suspect waits, nothing new begins on any queue of the process, so that
it waits for what runs and no longer; suspects go one after another, and every few seconds the others have a turn.
"""

import asyncio
import time
from asyncio import Future, TimerHandle
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

TURN_S = 10.0
"""Past this no further suspect follows the one before, while others wait."""
REST_S = 5.0
"""How long the others may begin work between two turns of suspects."""


class Solitude:
    """One for each process; its desks share it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._running = 0
        self._suspects: deque[Future[None]] = deque()
        self._alone = False
        self._turn_began: float | None = None
        self._rest: TimerHandle | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def closed(self) -> bool:
        """Whether nothing may begin now: a suspect runs, or waits for what runs."""
        return self._alone or (bool(self._suspects) and self._rest is None)

    def listen(self, on_open: Callable[[], None]) -> None:
        """Calls it whenever work may begin again."""
        self._listeners.append(on_open)

    def enter(self) -> None:
        """Some work begins beside other work; the caller has seen that nothing is closed."""
        assert not self.closed, "a suspect is to be alone"
        self._running += 1

    def leave(self) -> None:
        """That work has ended."""
        self._running -= 1
        self._go_on()

    @asynccontextmanager
    async def alone(self, timeout_s: float) -> AsyncIterator[None]:
        """Nothing else runs in this process meanwhile. TimeoutError when others still run after `timeout_s`."""
        turn: Future[None] = asyncio.get_running_loop().create_future()
        self._suspects.append(turn)
        self._go_on()
        try:
            async with asyncio.timeout(timeout_s):
                await turn
            yield
        finally:
            self._end(turn)

    def _end(self, turn: "Future[None]") -> None:
        """It was alone, or its wait was given up."""
        if turn in self._suspects:
            self._suspects.remove(turn)
        else:
            self._alone = False
            self._take_rest()
        self._go_on()
        if not self.closed:
            for on_open in self._listeners:
                on_open()

    def _take_rest(self) -> None:
        """Opens for the others when suspects have had their turn."""
        assert self._turn_began is not None
        if not self._suspects:
            self._turn_began = None
        elif self._monotonic() - self._turn_began >= TURN_S:
            self._turn_began = None
            self._rest = asyncio.get_running_loop().call_later(REST_S, self._end_rest)

    def _end_rest(self) -> None:
        self._rest = None
        self._go_on()

    def _go_on(self) -> None:
        """The next suspect's turn, when nothing runs."""
        if not self._suspects or self._alone or self._running or self._rest is not None:
            return
        self._alone = True
        if self._turn_began is None:
            self._turn_began = self._monotonic()
        turn = self._suspects.popleft()
        if not turn.done():
            turn.set_result(None)
