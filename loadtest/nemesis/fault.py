"""What a fault is, and what is known of one that was made."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

PROBE_S = 0.05


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows that a fault bit: seen at once, or to be found in the log when all is over."""

    seen: str = ""
    expected: tuple[str, ...] = ()
    """Marks (see `loadtest.chaos.marks`): one of them found is enough."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault as it was made. Times are milliseconds since the epoch, by the machine's clock."""

    kind: str
    target: str
    began_ms: int
    ended_ms: int
    """When it was healed."""
    evidence: Evidence

    def overlaps(self, from_ms: int, to_ms: int, aftermath_ms: int = 0) -> bool:
        """Whether it was felt within that time; its consequences last `aftermath_ms` longer than itself."""
        return self.began_ms <= to_ms and from_ms <= self.ended_ms + aftermath_ms


async def strike(kind: str, target: str, fault: Awaitable[Evidence]) -> Strike:
    """Makes a fault and notes when. One that cannot be made is a strike without evidence, which says why."""
    began_ms = now_ms()
    try:
        evidence = await fault
    except Exception as error:  # whatever it is: one fault that fails must not spare the plane the others
        return Strike(kind, f"{target}: not made, {error!r}", began_ms, now_ms(), Evidence())
    return Strike(kind, target, began_ms, now_ms(), evidence)


def now_ms() -> int:
    """The machine's clock, which is the broker's as well."""
    return time.time_ns() // 1_000_000


async def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(PROBE_S)
    return True


async def until_answer(ask: Callable[[], Awaitable[bool]], timeout_s: float) -> bool:
    """The same for a condition that has to be asked for."""
    deadline = time.monotonic() + timeout_s
    while not await ask():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(PROBE_S)
    return True
