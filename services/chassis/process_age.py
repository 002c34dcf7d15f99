"""How long this process has been there: what its interpreter and its imports took is part of a start."""

import os
import sys
import time
from pathlib import Path

_IMPORTED_AT = time.monotonic()


def process_age_s() -> float:
    """Seconds since the process began; where the system does not tell, since this module was imported."""
    if sys.platform != "linux":
        return time.monotonic() - _IMPORTED_AT
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began_s = int(after_name[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc(5): since boot
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)
