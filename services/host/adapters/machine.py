"""What this machine has for workers: cores, memory and GPUs, within the limits of the container if it is one."""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from schemas.fleet import Capacity

CGROUP = Path("/sys/fs/cgroup")
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
NVIDIA_SMI_TIMEOUT_S = 10.0
"""A driver that is not kept loaded takes seconds."""
MIB = 1 << 20


class Said(NamedTuple):
    """What somebody who knows better has said; None: it is found out. Memory is in bytes."""

    cpu: float | None = None
    memory: int | None = None
    gpus: int | None = None
    gpu_memory: int | None = None


NOTHING = Said()


async def capacity(said: Said = NOTHING, cgroup: Path = CGROUP) -> Capacity:
    """What is there, where nothing is said."""
    memories = [] if None not in (said.gpus, said.gpu_memory) else await _gpu_memories()
    return Capacity(
        cpu=cores(cgroup) if said.cpu is None else said.cpu,
        memory=_memory(cgroup) if said.memory is None else said.memory,
        gpus=len(memories) if said.gpus is None else said.gpus,
        gpu_memory=sum(memories) if said.gpu_memory is None else said.gpu_memory,
    )


def cores(cgroup: Path = CGROUP) -> float:
    """Those that this process may run on, and no more time on them than a container is given."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    version_1 = [*_read(cgroup / "cpu/cpu.cfs_quota_us"), *_read(cgroup / "cpu/cpu.cfs_period_us")]
    match _read(cgroup / "cpu.max") or version_1:
        case [int(quota), int(period)] if quota > 0:
            return min(usable, quota / period)
    return usable


def _memory(cgroup: Path) -> int:
    """Without a limit version 1 tells a number beyond any machine, and version 2 a word."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = _read(cgroup / "memory.max") or _read(cgroup / "memory/memory.limit_in_bytes")
    return min([there, *(limit for limit in limits if limit)])


def _read(file: Path) -> list[int | None]:
    """The numbers in a file; None for a word. Empty where there is no such file."""
    with suppress(OSError):
        return [int(word) if word.lstrip("-").isdigit() else None for word in file.read_text().split()]
    return []


async def _gpu_memories() -> list[int]:
    """Of each GPU, in bytes; none where there is no driver."""
    with suppress(OSError, TimeoutError, ValueError):
        process = await asyncio.create_subprocess_exec(*NVIDIA_SMI, stdout=PIPE, stderr=DEVNULL)
        try:
            async with asyncio.timeout(NVIDIA_SMI_TIMEOUT_S):
                told, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        return [int(line) * MIB for line in told.decode().splitlines()]
    return []
