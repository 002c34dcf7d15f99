"""Who runs beside whom on one worker process: everybody together, until a suspect has it to itself.

A task whose holders died is suspected of killing them. It runs alone, so that if it dies again nobody else can have
done it, and nobody else dies with it. While a suspect waits, nothing new begins on any queue of the process, so that
it waits for what runs and no longer; suspects go one after another, and every few seconds the others have a turn,
also when no suspect was alone meanwhile: what runs may take minutes.
"""

import asyncio
from asyncio import Future, TimerHandle
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

TURN_S = 10.0
"""From the moment the others may begin nothing: past this no suspect is next, whether or not one was alone."""
REST_S = 5.0
"""How long the others may begin work between two turns of suspects."""


class Solitude:
    """One for each process; its desks share it."""

    def __init__(self) -> None:
        self._running = 0
        self._suspects: deque[Future[None]] = deque()
        self._alone = False
        self._turn: TimerHandle | None = None
        """Ends the turn of suspects; None when none has begun, or its time is up while one is alone."""
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
        if not self.closed and self._rest is None:
            self._begin_turn()
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
            if self._suspects and self._turn is None:
                self._begin_rest()
        self._go_on()
        self._tell()

    def _begin_turn(self) -> None:
        self._turn = asyncio.get_running_loop().call_later(TURN_S, self._end_turn)

    def _end_turn(self) -> None:
        """Its time is up: who is alone ends first."""
        self._turn = None
        if not self._alone:
            self._begin_rest()
            self._tell()

    def _begin_rest(self) -> None:
        self._rest = asyncio.get_running_loop().call_later(REST_S, self._end_rest)

    def _end_rest(self) -> None:
        self._rest = None
        if self._suspects:
            self._begin_turn()
            self._go_on()

    def _go_on(self) -> None:
        """The next suspect is alone, when nothing runs."""
        if not self._suspects or self._alone or self._running or self._rest is not None:
            return
        self._alone = True
        turn = self._suspects.popleft()
        if not turn.done():
            turn.set_result(None)

    def _tell(self) -> None:
        if self.closed:
            return
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for on_open in self._listeners:
            on_open()
