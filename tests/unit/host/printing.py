"""In place of a worker: prints what it was given."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    given = (os.environ[f"HEADWAY_{name}"] for name in ("WORKER_HOST", "CONFIG", "WORKER_ASLEEP"))
    title = Path("/proc/self/cmdline").read_text(encoding="utf-8").rstrip("\0").split("\0")
    sys.stdout.write(f"{' '.join((*arguments, *given, *title))}\n")
    return 0
