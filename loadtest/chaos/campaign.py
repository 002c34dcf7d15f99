"""Carries a schedule out: faults overlap, but two never hold the same thing at once."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from loadtest.chaos.kinds import Field, Kind
from loadtest.chaos.schedule import Planned
from loadtest.nemesis.fault import Strike, strike


class Campaign:
    """One run of a schedule."""

    def __init__(self, kinds: Mapping[str, Kind], field: Field, seed: int, say: Callable[[str], None]) -> None:
        self._kinds = kinds
        self._field = field
        self._seed = seed
        self._say = say
        self._held: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._resting: set[asyncio.Task[None]] = set()
        self.strikes: list[Strike] = []

    async def run(self, plan: Sequence[Planned]) -> None:
        """Returns when every fault was made and healed."""
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for number, planned in enumerate(plan):
                await asyncio.sleep(max(0.0, began + planned.at_s - asyncio.get_running_loop().time()))
                group.create_task(self._one(number, planned.kind))
        for task in self._resting:
            task.cancel()

    async def _one(self, number: int, name: str) -> None:
        kind, rng = self._kinds[name], random.Random(f"{self._seed}:{number}:{name}")
        target = self._free_target(kind, rng)
        lock = self._held[kind.holds or target]
        await lock.acquire()
        try:
            made = await strike(name, target, kind.make(self._field, target, rng))
        finally:
            self._release(lock, kind.rests_s)
        self.strikes.append(made)
        lasted_s = (made.ended_ms - made.began_ms) / 1_000
        shown = made.evidence.seen or f"expects {len(made.evidence.expected)} marks"
        self._say(f"{name} {made.target}: {shown} ({lasted_s:.1f} s)")

    def _free_target(self, kind: Kind, rng: random.Random) -> str:
        """Any that nothing holds, else any."""
        free = [target for target in kind.targets if not self._held[kind.holds or target].locked()]
        return rng.choice(free or list(kind.targets))

    def _release(self, lock: asyncio.Lock, after_s: float) -> None:
        if not after_s:
            lock.release()
            return
        task = asyncio.create_task(_rest(lock, after_s))
        self._resting.add(task)
        task.add_done_callback(self._resting.discard)


async def _rest(lock: asyncio.Lock, for_s: float) -> None:
    try:
        await asyncio.sleep(for_s)
    finally:
        lock.release()
