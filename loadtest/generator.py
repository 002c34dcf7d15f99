"""Load: open loop at a rate (arrivals do not wait for answers), or closed loop at a concurrency; bounded in time."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from loadtest.measure import Measurement

GRACE_S = 30.0
"""How long answers that are still out are waited for when the time is over."""

Call = Callable[[int], Awaitable[bool]]
"""One request, by its number; whether it succeeded."""


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


class _Generator:
    def __init__(self, load: Load, call: Call) -> None:
        self.measurement = Measurement()
        self._call = call
        self._seed = load.seed
        self._clock = asyncio.get_running_loop().time
        self._start = self._clock()
        self._counted_from = self._start + load.warm_up_s
        self._end = self._counted_from + load.duration_s
        self._numbers = itertools.count()

    async def at_concurrency(self, callers: int) -> None:
        """Each caller makes its next call when the last one is done."""
        await asyncio.gather(*(self._caller() for _ in range(callers)))

    async def at(self, rate_per_s: float) -> None:
        """Poisson arrivals: independent users, who do not wait for each other."""
        arrivals = random.Random(self._seed)
        due = self._start
        async with asyncio.TaskGroup() as calls:
            while (due := due + arrivals.expovariate(rate_per_s)) < self._end:
                await asyncio.sleep(max(0.0, due - self._clock()))
                calls.create_task(self._one(due))

    async def _caller(self) -> None:
        while (due := self._clock()) < self._end:
            await self._one(due)

    async def _one(self, due: float) -> None:
        succeeded = await self._call(next(self._numbers))
        done = self._clock()
        if due < self._counted_from:
            return
        self.measurement.duration_s = max(self.measurement.duration_s, done - self._counted_from)
        if succeeded:
            self.measurement.latencies.append(done - due)
        else:
            self.measurement.failed += 1
