"""Processes killed, and frozen past their session so that they wake as zombies."""

import asyncio
import signal

from loadtest.nemesis.fault import Evidence, until
from loadtest.nemesis.parts import Parts, is_alive, send, state

RETURN_S = 60.0
"""How long a successor may take."""
STOP_S = 1.0


async def kill(parts: Parts, part: str) -> Evidence:
    """SIGKILL: the process is gone, and another one takes its place."""
    pid = parts.pid(part)
    if not pid or not send(pid, signal.SIGKILL):
        return Evidence()
    if not await until(lambda: not is_alive(pid), STOP_S):
        return Evidence()
    successor = await _successor(parts, part, pid)
    return Evidence(f"pid {pid} is gone, pid {successor} came") if successor else Evidence()


async def _successor(parts: Parts, part: str, before: int) -> int:
    """A process that runs the part, and is not the old one."""

    def came() -> bool:
        now = parts.pid(part)
        return now not in (0, before) and is_alive(now)

    return parts.pid(part) if await until(came, RETURN_S) else 0


async def freeze(parts: Parts, part: str, for_s: float) -> Evidence:
    """SIGSTOP, then SIGCONT: the kernel says `T`. Longer than its session, it wakes as a zombie."""
    return await freeze_process(parts.pid(part), for_s)


async def freeze_process(pid: int, for_s: float) -> Evidence:
    """The same for any process."""
    if not pid or not send(pid, signal.SIGSTOP):
        return Evidence()
    try:
        stopped = await until(lambda: state(pid) == "T", STOP_S)
        await asyncio.sleep(for_s)
        still = state(pid)
    finally:
        send(pid, signal.SIGCONT)
    after = "still stopped" if still == "T" else "killed meanwhile"
    return Evidence(f"pid {pid} in state T, after {for_s:g} s {after}") if stopped else Evidence()
