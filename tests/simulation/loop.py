"""An event loop in virtual time, on which several simulated processes run in one thread.

Within a process callbacks run in the order asyncio promises; whose turn it is among processes is drawn from the seed.
Whatever a process schedules belongs to it: a stopped process keeps all of that back, as after SIGSTOP, and a process
that is never continued was killed, at whatever `await` each of its tasks stood.
"""

import asyncio
from asyncio import Future, Task
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeVar, cast

T = TypeVar("T")

BROKER = "broker"
"""Owns what no process does. It never stands still."""
PROCESS: ContextVar[str] = ContextVar("process", default=BROKER)
MAX_AT_ONE_MOMENT = 200_000
"""Callbacks after which a moment that does not end is a livelock."""
SPARE = 5_000


class LivelockError(Exception):
    """Callbacks follow each other without end, and no time passes."""


class Scheduled:
    """One callback. `asyncio.Handle` and `TimerHandle` in one, without their cost."""

    __slots__ = ("_args", "_callback", "_context", "due", "is_cancelled", "owner")

    def __init__(self, callback: Callable[..., Any], args: Any, context: Context | None, due: float) -> None:
        self._callback = callback
        self._args = args
        self._context = context if context is not None else copy_context()
        self.owner = self._context.get(PROCESS, BROKER)
        self.due = due
        self.is_cancelled = False

    def cancel(self) -> None:
        """It will not run."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """As asyncio asks."""
        return self.is_cancelled

    def when(self) -> float:
        """As asyncio asks."""
        return self.due

    def run(self) -> None:
        """Runs it, unless it was cancelled."""
        if not self.is_cancelled:
            self._context.run(self._callback, *self._args)


class SimulatedLoop:
    """As much of an event loop as tasks, futures and time-outs need. Time jumps when nothing can run."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = 0.0
        self._ready: dict[str, deque[Scheduled]] = {BROKER: deque()}
        self._running: list[str] = [BROKER]
        """Processes that may run and have something to run."""
        self._stopped: set[str] = set()
        self._timers: list[tuple[float, int, Scheduled]] = []
        self._order = 0
        self._tasks: set[Task[Any]] = set()
        self._purge_at = SPARE
        self.errors: list[str] = []
        """Exceptions that nobody awaited."""

    # Processes ---------------------------------------------------------------------------------

    def stop_process(self, name: str) -> None:
        """From now on nothing of it runs."""
        self._stopped.add(name)
        if name in self._running:
            self._running.remove(name)

    def continue_process(self, name: str) -> None:
        """It goes on where it was stopped; what came due meanwhile is due now."""
        self._stopped.discard(name)
        if self._ready.get(name) and name not in self._running:
            self._running.append(name)

    def unwind(self) -> None:
        """Ends every task, those of killed processes too, so that none is left to the garbage collector."""
        asyncio.events._set_running_loop(cast(Any, self))
        for name in list(self._stopped):
            self.continue_process(name)
        pending = [task for task in self._tasks if not task.done()]
        for _ in range(20):
            for task in pending:
                task.cancel()
            while self._running:
                self._turn()
            pending = [task for task in pending if not task.done()]
        asyncio.events._set_running_loop(None)
        assert not pending, f"tasks do not end: {pending[:3]}"

    # Running -----------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Runs a coroutine to its end; LivelockError, or AssertionError when nothing will ever happen."""
        asyncio.events._set_running_loop(cast(Any, self))
        try:
            task = self.create_task(future)
            self._moment()
            while not task.done():
                self._pass_time()
                self._moment()
            return task.result()
        finally:
            asyncio.events._set_running_loop(None)

    def _moment(self) -> None:
        """Everything that can run now."""
        turns = 0
        while self._running:
            turns += self._turn()
            if turns > MAX_AT_ONE_MOMENT:
                raise LivelockError(f"no time passes after {self._now:.3f} s; running: {self._running}")

    def _pass_time(self) -> None:
        """Until the next timer."""
        assert self._timers, "nothing will ever happen"
        self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            self._queue(heappop(self._timers)[2])

    def _turn(self) -> int:
        """One iteration of one process's own loop."""
        running = self._running
        name = running[0] if len(running) == 1 else running[self._random.randrange(len(running))]
        queue = self._ready[name]
        count = len(queue)
        for done in range(count):
            queue.popleft().run()
            if name in self._stopped:
                return done + 1
        if not queue:
            running.remove(name)
        return count

    def _queue(self, scheduled: Scheduled) -> None:
        if scheduled.is_cancelled:
            return
        owner = scheduled.owner
        queue = self._ready.get(owner)
        if queue is None:
            queue = self._ready[owner] = deque()
        if not queue and owner not in self._stopped and owner not in self._running:
            self._running.append(owner)
        queue.append(scheduled)

    # What asyncio asks of a loop -----------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        scheduled = Scheduled(callback, args, context, self._now)
        self._queue(scheduled)
        return scheduled

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        scheduled = Scheduled(callback, args, context, when)
        self._order += 1
        heappush(self._timers, (when, self._order, scheduled))
        return scheduled

    def create_future(self) -> Future[Any]:
        return Future(loop=cast(Any, self))

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> Task[T]:
        """Keeps the task: nobody else may hold one that a killed process has left."""
        task = Task(coro, loop=cast(Any, self), name=name, context=context)
        self._tasks.add(task)
        if len(self._tasks) > self._purge_at:
            self._tasks = {task for task in self._tasks if not task.done()}
            self._purge_at = len(self._tasks) + SPARE
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)
