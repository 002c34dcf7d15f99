"""Kills every process group of a plane whose supervisor is gone, however it went.

The supervisor tells the reaper the groups over a pipe; when the pipe closes, what is still listed is killed. The
kernel closes the pipe even after `kill -9`, and a group holds grandchildren too.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time


class Reaper:
    """The supervisor's end: one small process that outlives it by a moment."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", os.path.abspath(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Ends the reaper, which first kills whatever was not forgotten."""
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.wait(timeout=5)

    def _tell(self, line: str) -> None:
        assert self._process, "watch() before start()"
        assert self._process.stdin
        # A reaper that was closed has done its work; one that was killed must not take the plane with it.
        if not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(line.encode())


def kill_group(group: int) -> None:
    """SIGKILL to all of a process group; nothing happens if it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        os.killpg(group, signal.SIGKILL)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for _ in range(2):  # twice: a process that was just being forked into a group
        for group in groups:
            kill_group(group)
        time.sleep(0.1 if groups else 0)


if __name__ == "__main__":
    main()
