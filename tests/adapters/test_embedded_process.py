"""Child processes of the plane: real ones, small ones."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from headway.plane.child import tied
from headway.plane.errors import PlaneError
from headway.plane.process import MAX_LOG_BYTES, ChildProcess, describe_exit, run_once, tail
from headway.plane.reaper import Reaper

DEADLINE_S = 10.0


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", script, *arguments]


SLEEPER = python("import time; print('up', flush=True); time.sleep(600)")
STUBBORN = python(
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
# Starts a child of its own, untied, and writes its pid.
PARENT = python(
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('up', child.pid, flush=True); time.sleep(600)"
)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ignores(pid: int, number: signal.Signals) -> bool:
    """Whether a process ignores a signal (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def says(log: Path, text: str) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        return text in tail(log)

    return ready


async def spawn(argv: list[str], log: Path, reaper: Reaper | None = None) -> ChildProcess:
    child = await ChildProcess.spawn(argv, os.environ, log, reaper)
    await child.until(says(log, "up"), DEADLINE_S)
    return child


def grandchild(log: Path) -> int:
    return int(tail(log).split()[-1])


async def test_output_goes_to_the_log_and_the_exit_code_is_returned(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.log"
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    child = await ChildProcess.spawn(python(script), os.environ, log)
    assert await child.wait() == 7
    assert sorted(tail(log).split()) == ["err", "out"]


async def test_it_runs_in_its_folder_with_its_environment(tmp_path: Path) -> None:
    script = "import os; print(os.getcwd(), os.environ['HEADWAY_X'])"
    child = await ChildProcess.spawn(python(script), {"HEADWAY_X": "y"}, tmp_path / "x.log", folder=tmp_path)
    assert await child.wait() == 0
    assert tail(tmp_path / "x.log") == f"{tmp_path} y"


async def test_stop_terminates(tmp_path: Path) -> None:
    child = await spawn(SLEEPER, tmp_path / "x.log")
    await child.stop(grace_s=DEADLINE_S)
    assert child.exit_code == -signal.SIGTERM
    assert not is_running(child.pid)


async def test_stop_kills_what_ignores_it_after_the_grace(tmp_path: Path) -> None:
    child = await spawn(STUBBORN, tmp_path / "x.log")
    started = time.monotonic()
    await child.stop(grace_s=0.3)
    assert child.exit_code == -signal.SIGKILL
    assert 0.3 <= time.monotonic() - started < 3


async def test_stop_after_the_end_is_harmless(tmp_path: Path) -> None:
    child = await ChildProcess.spawn(python(""), os.environ, tmp_path / "x.log")
    await child.wait()
    await child.stop(grace_s=1)
    assert child.exit_code == 0


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    child = await spawn(PARENT, tmp_path / "x.log")
    left_behind = grandchild(tmp_path / "x.log")
    os.kill(child.pid, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    await until(lambda: not is_running(left_behind))


async def test_a_program_that_ends_while_starting_is_quoted(tmp_path: Path) -> None:
    child = await ChildProcess.spawn(python("import sys; sys.exit('no GPU here')"), os.environ, tmp_path / "x.log")
    with pytest.raises(PlaneError, match=r"it ended with exit code 1; the end of .*x\.log:\nno GPU here"):
        await child.until(says(tmp_path / "x.log", "up"), DEADLINE_S)


async def test_a_program_that_is_never_ready_is_stopped_and_quoted(tmp_path: Path) -> None:
    child = await spawn(SLEEPER, tmp_path / "x.log")
    with pytest.raises(PlaneError, match=r"it was not ready after 0 s; the end of .*x\.log:\nup"):
        await child.until(says(tmp_path / "x.log", "never"), timeout_s=0.3)
    assert child.exit_code == -signal.SIGTERM


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    child = await spawn(SLEEPER, tmp_path / "x.log")
    starting = asyncio.create_task(child.until(says(tmp_path / "x.log", "never"), DEADLINE_S))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert child.exit_code == -signal.SIGTERM


async def test_a_one_shot_that_succeeds_returns(tmp_path: Path) -> None:
    await run_once(python("print('done')"), os.environ, tmp_path / "x.log", timeout_s=DEADLINE_S)
    assert tail(tmp_path / "x.log") == "done"


async def test_a_one_shot_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(PlaneError, match=r"exit code 3; .*\nmissing topic"):
        await run_once(
            python("print('missing topic', flush=True); raise SystemExit(3)"),
            os.environ,
            tmp_path / "x.log",
            timeout_s=DEADLINE_S,
        )


async def test_a_program_that_does_not_exist_is_an_exit_not_a_hang(tmp_path: Path) -> None:
    with pytest.raises(PlaneError, match="No such file or directory"):
        await run_once(["/no/such/program"], os.environ, tmp_path / "x.log", timeout_s=DEADLINE_S)


async def test_a_large_log_is_moved_aside_before_the_next_start(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"x" * (MAX_LOG_BYTES + 1))
    await run_once(python("print('fresh')"), os.environ, log, timeout_s=DEADLINE_S)
    assert log.read_text() == "fresh\n"
    assert (tmp_path / "x.log.1").stat().st_size == MAX_LOG_BYTES + 1


async def test_a_small_log_is_continued(tmp_path: Path) -> None:
    for _ in range(2):
        await run_once(python("print('again')"), os.environ, tmp_path / "x.log", timeout_s=DEADLINE_S)
    assert tail(tmp_path / "x.log") == "again\nagain"


@pytest.mark.parametrize(("code", "words"), [(0, "exit code 0"), (143, "exit code 143"), (-9, "SIGKILL")])
def test_an_exit_reads_like_a_sentence(code: int, words: str) -> None:
    assert describe_exit(code) == words


def test_the_tail_of_a_long_log_is_its_end(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("".join(f"line {n}\n" for n in range(5_000)))
    assert tail(tmp_path / "x.log", lines=2) == "line 4998\nline 4999"
    assert tail(tmp_path / "missing.log") == ""


SUPERVISOR = """
import asyncio, os, sys
from pathlib import Path
from headway.plane.process import ChildProcess, tail
from headway.plane.reaper import Reaper

async def main(log: Path, reaper: Reaper | None, argv: list[str]) -> None:
    child = await ChildProcess.spawn(argv, os.environ, log, reaper)
    while not tail(log).startswith("up"):
        await asyncio.sleep(0.02)
    print(child.pid, flush=True)
    await asyncio.sleep(600)

reaper = Reaper() if sys.argv[2] == "reaper" else None
if reaper:
    reaper.start()
asyncio.run(main(Path(sys.argv[1]), reaper, sys.argv[3:]))
"""


async def kill_supervisor_of(argv: list[str], log: Path, reaper: str) -> int:
    """Kills a process that supervises `argv`; returns the pid of what it supervised."""
    command = python(SUPERVISOR, str(log), reaper, *argv)
    supervisor = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert supervisor.stdout is not None
    child = int(await asyncio.wait_for(supervisor.stdout.readline(), DEADLINE_S))
    assert is_running(child)
    supervisor.kill()
    await supervisor.wait()
    return child


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ties processes to their parent on Linux only")
async def test_a_child_dies_with_a_killed_supervisor(tmp_path: Path) -> None:
    child = await kill_supervisor_of(STUBBORN, tmp_path / "x.log", "alone")
    await until(lambda: not is_running(child))


async def test_a_grandchild_dies_with_a_killed_supervisor(tmp_path: Path) -> None:
    child = await kill_supervisor_of(PARENT, tmp_path / "x.log", "reaper")
    await until(lambda: not is_running(child) and not is_running(grandchild(tmp_path / "x.log")))


async def test_a_closed_reaper_kills_only_what_was_not_forgotten(tmp_path: Path) -> None:
    reaper = Reaper()
    reaper.start()
    kept = await spawn(SLEEPER, tmp_path / "kept.log")
    lost = await spawn(SLEEPER, tmp_path / "lost.log", reaper)
    reaper.watch(kept.pid)
    reaper.forget(kept.pid)
    reaper.close()
    assert await lost.wait() == -signal.SIGKILL
    assert is_running(kept.pid)
    await kept.stop(grace_s=DEADLINE_S)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_reaper_outlives_an_interrupted_terminal(tmp_path: Path) -> None:
    reaper = Reaper()
    reaper.start()
    child = await spawn(SLEEPER, tmp_path / "x.log", reaper)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    await until(lambda: all(ignores(reaper.pid, number) for number in numbers))
    for number in numbers:
        os.kill(reaper.pid, number)
    reaper.close()
    assert await child.wait() == -signal.SIGKILL


async def test_a_killed_reaper_does_not_take_the_plane_with_it(tmp_path: Path) -> None:
    reaper = Reaper()
    reaper.start()
    os.kill(reaper.pid, signal.SIGKILL)
    await until(lambda: not is_running(reaper.pid))
    child = await spawn(SLEEPER, tmp_path / "x.log", reaper)
    await child.stop(grace_s=DEADLINE_S)
    reaper.close()
    assert child.exit_code == -signal.SIGTERM


def test_a_shim_whose_parent_is_already_gone_runs_nothing(tmp_path: Path) -> None:
    command = tied(python(f"open({str(tmp_path / 'ran')!r}, 'w')"))
    command[command.index("--") - 1] = "1"
    assert subprocess.run(command, check=False).returncode == 128 + signal.SIGKILL
    assert not (tmp_path / "ran").exists()
