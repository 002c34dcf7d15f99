"""How long this process has been there: what its interpreter and its imports took is part of a start."""

import os
import sys
import time
from pathlib import Path

_began_at = time.monotonic()


def _begin() -> None:
    global _began_at  # noqa: PLW0603  a process has one beginning
    _began_at = time.monotonic()


os.register_at_fork(after_in_child=_begin)


def process_age_s() -> float:
    """Seconds since it began; where the system does not tell, since it imported this module or was forked."""
    if sys.platform != "linux":
        return time.monotonic() - _began_at
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began_s = int(after_name[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc(5): since boot
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)
