"""Work that blocks, in a thread beside the event loop, one piece at a time.

Unlike a pool's, the thread is nobody's to wait for: work that hangs holds up neither the loop nor the process's end,
and no more work piles up behind it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
NAME = "aside"


class Aside:
    """One thread at most."""

    def __init__(self) -> None:
        self._work: Future[Any] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something is under way still, perhaps given up long ago."""
        return self._work is not None and not self._work.done()

    async def do(self, work: Callable[[], T]) -> T:
        """What it returns or raises, once what is under way has ended. Cancelled, it goes on unheard."""
        while self._work is not None and not self._work.done():
            await asyncio.gather(asyncio.wrap_future(self._work), return_exceptions=True)
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()  # so that whoever stops waiting cancels nothing
        Thread(target=_do, args=(work, done), name=NAME, daemon=True).start()
        self._work = done  # not before: without a thread nothing is under way
        return await asyncio.wrap_future(done)


def _do(work: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:
        done.set_exception(error)
