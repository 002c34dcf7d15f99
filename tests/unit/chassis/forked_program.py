"""What a fork server imports in its tests: does what its arguments say."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from services.chassis.process_age import process_age_s

IMPORTED_IN = os.getpid()
FOREVER_S = 600


def main(arguments: Sequence[str]) -> int:
    match list(arguments):
        case ["exit", code]:
            return int(code)
        case ["describe"]:
            has_imported = os.getpid() == IMPORTED_IN
            say(
                has_imported,
                "numpy" in sys.modules,
                threading.active_count(),
                os.environ["GIVEN"],
                os.environ["MORE"],
                _open_sockets(),
            )
            return 0
        case ["age", platform]:
            sys.platform = platform
            say(process_age_s())
            return 0
        case ["fail"]:
            raise RuntimeError("as told")
    time.sleep(FOREVER_S)
    return 0


def say(*words: object) -> None:
    sys.stdout.write(f"{' '.join(map(str, words))}\n")


def _open_sockets() -> list[str]:
    links = (file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink())
    return sorted(str(link) for link in links if str(link).startswith("socket"))
