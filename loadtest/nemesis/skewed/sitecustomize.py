"""Imported by every Python process that has this folder on its path: takes a token, and is off by as much.

Standard library only, and nothing of ours: it runs before everything else.
"""

import os
import sys
import time


def _service(command: list[str]) -> str | None:
    """`aggregator` of `python -m headway serve aggregator`, `worker` of `python -m headway worker …`."""
    if command[1:3] != ["-m", "headway"] or len(command) < 4:
        return None
    return command[4] if command[3] == "serve" and len(command) > 4 else command[3]


def _take(home: str, service: str) -> float:
    """The seconds of a token; 0 when there is none, or another process took it."""
    token = os.path.join(home, "skewed", service)
    taken = f"{token}.{os.getpid()}"
    try:
        os.rename(token, taken)
        with open(taken) as file:
            return float(file.read())
    except (OSError, ValueError):
        return 0.0


def _shift(by_s: float) -> None:
    if not by_s:
        return
    true_time, true_time_ns = time.time, time.time_ns
    time.time = lambda: true_time() + by_s
    time.time_ns = lambda: true_time_ns() + int(by_s * 1_000_000_000)


if (_home := os.environ.get("HEADWAY_HOME")) and (_name := _service(sys.orig_argv)):
    _shift(_take(_home, _name))
