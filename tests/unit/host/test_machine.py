"""A host announces what its machine has, within what its container may use."""

import os
from pathlib import Path

import pytest

from schemas.fleet import Capacity
from services.host.adapters import machine
from services.host.adapters.machine import Said, capacity, cores

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_DOT_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.usefixtures("eight_cores")
async def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", write(tmp_path / "v2", cpu_DOT_max="max 100000\n", memory_DOT_max="max\n")):
        found = await capacity(cgroup=folder)
        assert (found.cpu, found.memory) == (8.0, MEMORY)


@pytest.mark.usefixtures("eight_cores")
async def test_a_container_has_what_it_may_use(tmp_path: Path) -> None:
    folder = write(tmp_path, cpu_DOT_max="150000 100000\n", memory_DOT_max=f"{256 * MIB}\n")
    found = await capacity(cgroup=folder)
    assert (found.cpu, found.memory) == (1.5, 256 * MIB)


@pytest.mark.usefixtures("eight_cores")
async def test_an_older_kind_of_limit_counts_as_well(tmp_path: Path) -> None:
    limits = {"cpu__cpu_DOT_cfs_period_us": "100000\n", "memory__memory_DOT_limit_in_bytes": f"{256 * MIB}\n"}
    limited = write(tmp_path / "a", cpu__cpu_DOT_cfs_quota_us="200000\n", **limits)
    assert await capacity(cgroup=limited) == Capacity(cpu=2.0, memory=256 * MIB)
    assert cores(write(tmp_path / "b", cpu__cpu_DOT_cfs_quota_us="-1\n", **limits)) == 8.0


async def test_what_is_said_counts_instead() -> None:
    said = Said(cpu=0.5, memory=7, gpus=2, gpu_memory=80)
    assert await capacity(said) == Capacity(cpu=0.5, memory=7, gpus=2, gpu_memory=80)


@pytest.mark.parametrize(
    ("prints", "gpus", "gpu_memory"),
    [("143771\n143771", 2, 287_542 * MIB), ("no devices were found", 0, 0), ("", 0, 0)],
)
async def test_gpus_are_those_that_their_driver_tells(
    prints: str, gpus: int, gpu_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "NVIDIA_SMI", ("printf", prints))
    found = await capacity()
    assert (found.gpus, found.gpu_memory) == (gpus, gpu_memory)


async def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "NVIDIA_SMI", ("no-such-program",))
    assert (await capacity()).gpus == 0
