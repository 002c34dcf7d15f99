"""Processes killed, and frozen past their session so that they wake as zombies."""

import asyncio
import signal
from collections.abc import Sequence

from loadtest.nemesis.fault import Evidence, until
from loadtest.nemesis.parts import RETURN_S, Parts, is_alive, send, state

STOP_S = 1.0


async def kill(parts: Parts, part: str) -> Evidence:
    """SIGKILL: the process is gone, and another one takes its place."""
    before = await parts.living(part)
    if not before or not send(before[0], signal.SIGKILL):
        return Evidence()
    if not await until(lambda: not is_alive(before[0]), STOP_S):
        return Evidence()
    successor = await _successor(parts, part, before)
    return Evidence(f"pid {before[0]} is gone, pid {successor} came") if successor else Evidence()


async def _successor(parts: Parts, part: str, before: Sequence[int]) -> int:
    """A process that runs the part, and did not before; 0 when none comes."""

    def new() -> int:
        return next((pid for pid in parts.pids(part) if pid not in before and is_alive(pid)), 0)

    return new() if await until(lambda: bool(new()), RETURN_S) else 0


async def freeze(parts: Parts, part: str, for_s: float) -> Evidence:
    """SIGSTOP, then SIGCONT: the kernel says `T`. Longer than its session, it wakes as a zombie."""
    pids = await parts.living(part)
    if not pids or not send(pid := pids[0], signal.SIGSTOP):
        return Evidence()
    try:
        stopped = await until(lambda: state(pid) == "T", STOP_S)
        await asyncio.sleep(for_s)
        still = state(pid)
    finally:
        send(pid, signal.SIGCONT)
    after = "still stopped" if still == "T" else "killed meanwhile"
    return Evidence(f"pid {pid} in state T, after {for_s:g} s {after}") if stopped else Evidence()
