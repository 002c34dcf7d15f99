"""Load: open loop at a rate (arrivals do not wait for answers), or closed loop at a concurrency; bounded in time."""

import asyncio
import itertools
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from loadtest.measure import Measurement, Outcome

GRACE_S = 30.0
"""How long answers that are still out are waited for when the time is over."""

Call = Callable[[int], Awaitable[Outcome]]
"""One request, by its number."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much for how long. A rate makes it open loop, else `concurrency` callers take turns."""

    duration_s: float
    rate_per_s: float | None = None
    concurrency: int = 1
    seed: int = 0
    warm_up_s: float = 1.0
    """Requests due within this time are made, but not counted."""


async def generate(load: Load, call: Call) -> Measurement:
    """Makes the calls and measures each from the moment it was due: a stall delays later calls, and shows in them."""
    generator = _Generator(load, call)
    arrive = generator.at_concurrency(load.concurrency) if load.rate_per_s is None else generator.at(load.rate_per_s)
    async with asyncio.timeout(load.warm_up_s + load.duration_s + GRACE_S):
        await arrive
    return generator.measurement


def arrivals(rate_per_s: float, seed: int, start: float, end: float) -> Iterator[float]:
    """When calls are due, a Poisson process: independent users, who do not wait for each other."""
    gaps, due = random.Random(seed), start
    while (due := due + gaps.expovariate(rate_per_s)) < end:
        yield due


def evenly(rate_per_s: float, start: float, end: float) -> Iterator[float]:
    """When calls are due that chance shall not crowd together."""
    return (start + number / rate_per_s for number in range(math.ceil((end - start) * rate_per_s)))


class _Generator:
    def __init__(self, load: Load, call: Call) -> None:
        self.measurement = Measurement()
        self._call = call
        self._seed = load.seed
        self._start = time.monotonic()
        self._counted_from = self._start + load.warm_up_s
        self._end = self._counted_from + load.duration_s
        self._numbers = itertools.count()

    async def at_concurrency(self, callers: int) -> None:
        """Each caller makes its next call when the last one is done."""
        await asyncio.gather(*(self._caller() for _ in range(callers)))

    async def at(self, rate_per_s: float) -> None:
        """Calls begin when they are due, whatever became of those before."""
        async with asyncio.TaskGroup() as calls:
            await paced(
                arrivals(rate_per_s, self._seed, self._start, self._end),
                lambda due: calls.create_task(self._one(due)),
            )

    async def _caller(self) -> None:
        while (due := time.monotonic()) < self._end:
            await self._one(due)

    async def _one(self, due: float) -> None:
        outcome = await self._call(next(self._numbers))
        done = time.monotonic()
        if due >= self._counted_from:
            self.measurement.record(done - self._counted_from, done - due, outcome)


async def paced(dues: Iterable[float], begin: Callable[[float], object]) -> None:
    """Calls `begin(due)` in this loop at each time of the monotonic clock; returns after the last.

    A thread keeps the time, to a tenth of a millisecond: an event loop's own timers are late by up to one, and that
    would be counted as the plane's.
    """
    loop, over = asyncio.get_running_loop(), threading.Event()

    def begin_unless_over(due: float) -> None:
        if not over.is_set():
            begin(due)

    def keep_time() -> None:
        for due in dues:
            if over.wait(max(0.0, due - time.monotonic())):
                return
            loop.call_soon_threadsafe(begin_unless_over, due)

    try:
        await asyncio.to_thread(keep_time)
    finally:
        over.set()
