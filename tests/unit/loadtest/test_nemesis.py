"""The faults themselves, on small processes and folders: each bites, heals, and says so only when it did."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headway.plane.endpoints import SUPERVISOR, Endpoints, write_endpoints
from loadtest.nemesis import clocks, disk, processes
from loadtest.nemesis import parts as parts_module
from loadtest.nemesis.fault import Evidence, strike, until
from loadtest.nemesis.parts import Parts, is_alive, send, state

IDLE = (sys.executable, "-c", "import time; time.sleep(600)")
WRITER = """
import sys, time
while True:
    try:
        with open(sys.argv[1], "a") as file:
            file.write("x" * 100)
        said = "written"
    except OSError as error:
        said = error.strerror
    with open("/proc/self/comm", "w") as name:
        name.write(said[:12])
    time.sleep(0.01)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="faults are made by way of /proc and Linux's calls")


Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes, and ends them after the test."""
    with ExitStack() as started:

        def one(*command: str) -> int:
            process = started.enter_context(subprocess.Popen(command or IDLE))
            started.callback(process.kill)
            return process.pid

        yield one


def plane_of(home: Path, **pids: int) -> Parts:
    write_endpoints(
        home,
        Endpoints(
            ready=True, kafka="127.0.0.1:1", redis="redis://127.0.0.1:2", pids={SUPERVISOR: os.getpid()} | pids
        ),
    )
    return Parts(home)


async def test_a_frozen_process_is_stopped_and_runs_again(start: Start, tmp_path: Path) -> None:
    pid = start()
    parts = plane_of(tmp_path, aggregator=pid)
    freezing = asyncio.create_task(processes.freeze(parts, "aggregator", 0.3))
    assert await until(lambda: state(pid) == "T", 5)
    evidence = await freezing
    assert f"pid {pid} in state T" in evidence.seen
    assert await until(lambda: state(pid) != "T", 5)


async def test_a_process_that_is_not_there_cannot_be_frozen(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "RETURN_S", 0.1)
    strangers = plane_of(tmp_path, plane=start(), aggregator=start())
    assert await processes.freeze(strangers, "aggregator", 0.1) == Evidence()
    assert await processes.freeze(plane_of(tmp_path), "aggregator", 0.1) == Evidence()


async def test_a_kill_is_evident_only_when_another_process_came(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, successor = start(), start()
    parts = plane_of(tmp_path, host=pid)
    killing = asyncio.create_task(processes.kill(parts, "host"))
    assert await until(lambda: not is_alive(pid), 5)
    plane_of(tmp_path, host=successor)
    assert (await killing).seen == f"pid {pid} is gone, pid {successor} came"
    monkeypatch.setattr(processes, "RETURN_S", 0.1)
    assert await processes.kill(parts, "host") == Evidence()


def test_a_signal_to_nobody_is_no_error() -> None:
    process = subprocess.Popen(IDLE)
    process.kill()
    process.wait()
    assert not send(process.pid, signal.SIGKILL)
    assert state(process.pid) == ""


async def test_a_broken_blob_folder_refuses_and_comes_back_with_its_blobs(tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    (blobs / "ab").mkdir(parents=True)
    (blobs / "ab" / "abc").write_bytes(b"kept")
    breaking = asyncio.create_task(disk.break_blob_folder(blobs, 0.3))
    assert await until(blobs.is_file, 5)
    with pytest.raises(NotADirectoryError):  # and not FileNotFoundError: nothing is missing
        (blobs / "ab" / "abc").read_bytes()
    assert (await breaking).seen == "blobs: Not a directory, for 0.3 s"
    assert (blobs / "ab" / "abc").read_bytes() == b"kept"
    assert os.listdir(tmp_path) == ["blobs"]


async def test_a_process_without_disk_can_write_no_file_and_then_can_again(start: Start, tmp_path: Path) -> None:
    pid = start(sys.executable, "-c", WRITER, str(tmp_path / "file"))

    def says() -> str:
        return Path(f"/proc/{pid}/comm").read_text().strip()

    assert await until(lambda: says() == "written", 5)
    filling = asyncio.create_task(disk.forbid_files(pid, 0.5))
    assert await until(lambda: says() == "File too lar", 5)
    assert "files of 0 bytes" in (await filling).seen
    assert await until(lambda: says() == "written", 5)


def service_clock(home: Path, service: str) -> float:
    """What a process of a service takes the time to be, in a package that only has its name."""
    package = home / "path" / "headway"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import time; print(time.time(), time.time_ns())")
    path = os.pathsep.join([clocks.environment()["PYTHONPATH"], str(home / "path")])
    command = (sys.executable, "-m", "headway", "serve", service)
    env = {"HEADWAY_HOME": str(home), "PYTHONPATH": path}
    told = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, check=True).stdout.split()
    assert abs(float(told[0]) - int(told[1]) / 1e9) < 1
    return float(told[0])


def test_one_process_of_the_service_takes_the_token_and_is_off(tmp_path: Path) -> None:
    token = tmp_path / clocks.TOKENS / "aggregator"
    token.parent.mkdir()
    token.write_text("3600")
    assert abs(service_clock(tmp_path, "orchestrator") - time.time()) < 60
    assert token.exists()
    assert abs(service_clock(tmp_path, "aggregator") - time.time() - 3_600) < 60
    assert not token.exists()
    assert abs(service_clock(tmp_path, "aggregator") - time.time()) < 60


async def test_a_fault_that_cannot_be_made_is_a_strike_without_evidence() -> None:
    async def impossible() -> Evidence:
        raise OSError("no such process")

    made = await strike("kill-host", "host", impossible())
    assert made.evidence == Evidence()
    assert "no such process" in made.target
