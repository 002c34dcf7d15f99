"""What each part of a plane takes: CPU time and memory of its processes, and of theirs."""

import contextlib
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import psutil

from headway.plane.endpoints import SUPERVISOR, Endpoints

LOADTEST = "loadtest"
"""This process, and what it started but for a plane: also the supervisor of its own plane."""
MODEL_CLASS = "--model-class"


class Usage(NamedTuple):
    """CPU seconds since the processes began; resident memory, of which what they share is counted in each."""

    cpu_s: float
    rss_mib: float

    def __add__(self, other: "Usage") -> "Usage":  # type: ignore[override]
        return Usage(self.cpu_s + other.cpu_s, self.rss_mib + other.rss_mib)


NOTHING = Usage(0.0, 0.0)


def usage(endpoints: Endpoints) -> dict[str, Usage]:
    """By part: `kafka`, `valkey`, `orchestrator`, …, `worker quick` for all workers of a queue, and `loadtest`."""
    found: dict[str, Usage] = {}
    for process, part in _parts(endpoints):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            found[part] = found.get(part, NOTHING) + _usage(process)
    return found


def cpu_between(before: dict[str, Usage], after: dict[str, Usage]) -> dict[str, float]:
    """CPU seconds by part; what a process that ended meanwhile took is not known, and not counted."""
    return {part: max(0.0, use.cpu_s - before.get(part, NOTHING).cpu_s) for part, use in after.items()}


def rss_mib(used: dict[str, Usage]) -> dict[str, float]:
    """MiB by part."""
    return {part: use.rss_mib for part, use in used.items()}


def _parts(endpoints: Endpoints) -> Iterator[tuple[psutil.Process, str]]:
    """Every process of this one and of the plane, with the part it belongs to: its own, or that of its parent."""
    own, supervisor = os.getpid(), endpoints.pids[SUPERVISOR]
    parts = {pid: part for part, pid in endpoints.pids.items()} | {own: LOADTEST}
    for root in {own, supervisor}:
        process = psutil.Process(root)
        yield process, parts[root]
        for child in process.children(recursive=True):  # parents come before their children
            with contextlib.suppress(psutil.Error):
                part = parts.get(child.pid) or _worker(_words(child)) or parts[child.ppid()]
                parts[child.pid] = part
                yield child, part


def _words(process: psutil.Process) -> list[str]:
    """Of its command. A process that gave itself a title has it as one argument, and empty ones after it."""
    return " ".join(process.cmdline()).split()


def _worker(command: list[str]) -> str | None:
    """A worker's part, by the queues it was started for; None for another program."""
    labels = [label for option, label in pairwise(command) if option == MODEL_CLASS]
    return f"worker {'+'.join(labels)}" if labels else None


def _usage(process: psutil.Process) -> Usage:
    with process.oneshot():
        cpu = process.cpu_times()
        return Usage(cpu.user + cpu.system, process.memory_info().rss / (1 << 20))
