"""Lanes that always have work: callers that ask again as soon as they are answered."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

from schemas.base import Priority

Ask = Callable[[Priority], Awaitable[bool]]
"""One request of a lane; whether it succeeded."""


class Saturation:
    """Who was served, and how often."""

    def __init__(self, ask: Ask) -> None:
        self.served: Counter[Priority] = Counter()
        self.failed = 0
        self._ask = ask
        self._over = False

    def end(self) -> None:
        """Nobody asks again."""
        self._over = True

    async def caller(self, lane: Priority) -> None:
        """One caller, until the end."""
        while not self._over:
            if await self._ask(lane):
                self.served[lane] += 1
            else:
                self.failed += 1


@asynccontextmanager
async def saturated(
    ask: Ask, callers: int, lanes: Collection[Priority] = tuple(Priority)
) -> AsyncIterator[Saturation]:
    """So many requests of each lane are out, all the time. Leaving waits until the last one is answered."""
    saturation = Saturation(ask)
    async with asyncio.TaskGroup() as group:
        for lane in lanes:
            for _ in range(callers):
                group.create_task(saturation.caller(lane))
        try:
            yield saturation
        finally:
            saturation.end()


def shares_percent(before: Counter[Priority], after: Counter[Priority]) -> dict[str, float]:
    """What each lane got of all that was served in between."""
    served = {lane.value: after[lane] - before[lane] for lane in Priority}
    total = sum(served.values()) or 1
    return {lane: round(100 * count / total, 2) for lane, count in served.items()}
