"""Many callers, one call on its way at a time: what is asked meanwhile travels together in the next one.

Alone a caller waits for nobody; under load the round trips grow into batches by themselves.
"""

import asyncio
from asyncio import Future, Task
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, islice
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Coalescer(Generic[T, R]):
    """`call` answers a list of items with as many results, in their order."""

    def __init__(self, call: Callable[[Sequence[T]], Awaitable[Sequence[R]]], linger_s: float = 0.0) -> None:
        """`linger_s`: how long the first one waits for company, where nobody is in a hurry."""
        self._call = call
        self._linger_s = linger_s
        self._busy = False
        self._waiting: list[tuple[Sequence[T], Future[list[R]]]] = []
        self._next: Task[None] | None = None

    async def __call__(self, items: Sequence[T]) -> Sequence[R]:
        """The results of these items; raises what the call that carried them raised."""
        if not self._busy and not self._linger_s:
            return await self._alone(items)
        loop = asyncio.get_running_loop()
        answered: Future[list[R]] = loop.create_future()
        self._waiting.append((items, answered))
        if not self._busy:
            self._busy = True
            loop.call_later(self._linger_s, self._go_on)
        return await answered

    async def _alone(self, items: Sequence[T]) -> Sequence[R]:
        self._busy = True
        try:
            return await self._call(items)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._busy = bool(waiting)
        self._next = asyncio.create_task(self._together(waiting)) if waiting else None

    async def _together(self, waiting: list[tuple[Sequence[T], Future[list[R]]]]) -> None:
        try:
            results = iter(await self._call(list(chain.from_iterable(items for items, _ in waiting))))
        except Exception as error:
            for _, answered in waiting:
                if not answered.done():
                    answered.set_exception(error)
        else:
            for items, answered in waiting:
                mine = list(islice(results, len(items)))
                if not answered.done():
                    answered.set_result(mine)
        finally:
            self._go_on()
