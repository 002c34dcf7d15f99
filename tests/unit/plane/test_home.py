"""The lock of a home."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.plane.errors import PlaneError
from headway.plane.home import HomeLock


def test_a_second_plane_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    first = HomeLock(tmp_path / "home")
    first.acquire()
    with pytest.raises(PlaneError, match=rf"already up in .*home \(pid {os.getpid()}\): stop that one"):
        HomeLock(tmp_path / "home").acquire()
    first.release()


def test_a_released_home_is_free_again(tmp_path: Path) -> None:
    for _ in range(2):
        lock = HomeLock(tmp_path)
        lock.acquire()
        assert lock.held
        lock.release()
        assert not lock.held


def test_a_killed_holder_leaves_the_home_free(tmp_path: Path) -> None:
    script = """
import sys, time
from pathlib import Path
from headway.plane.home import HomeLock
lock = HomeLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(PlaneError, match=f"pid {holder.pid}"):
            HomeLock(tmp_path).acquire()
        holder.kill()
    lock = HomeLock(tmp_path)
    lock.acquire()
    lock.release()


def test_a_home_that_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaneError, match=r"file/home cannot be written .*choose another --home"):
        HomeLock(tmp_path / "file" / "home").acquire()
