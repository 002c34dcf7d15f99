"""Runs a program that is killed when its parent dies: `python child.py PARENT_PID -- argv...`.

The shim sets PR_SET_PDEATHSIG and then becomes the program, so no process is added. It imports nothing of ours
and is started without site-packages: about 15 ms.

Linux only. The kernel sends the signal when the parent *thread* that spawned the child ends, so spawn from the
main thread; and it does so for direct children alone, so whoever has children of its own ties them the same way.
On macOS the program runs untied: there only the plane's reaper cleans up after a supervisor that was killed.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when `parent_pid` dies; exits at once if it already has."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:  # it died before the kernel was told
        os._exit(128 + signal.SIGKILL)


def tied(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` as a child of this process which does not outlive it."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), "--", *argv]


def main() -> None:
    parent_pid, separator, *argv = sys.argv[1:]
    if separator != "--" or not argv:
        sys.exit("usage: child.py PARENT_PID -- argv...")
    die_with_parent(int(parent_pid))
    os.execvp(argv[0], argv)  # noqa: S606 - becoming a fixed argument list, without a shell, is the point


if __name__ == "__main__":
    main()
