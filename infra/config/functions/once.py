"""Files that are made once and read by every worker of a home."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_TIMEOUT_S = 120.0


def made_once(path: Path, make: Callable[[Path], None]) -> Path:
    """`path`, made by `make(part)` if it is not there yet.

    Of workers that start together one makes it and the others wait. It appears whole or not at all, even when its
    maker is killed: `part` is renamed once it is on the disk. TimeoutError when the others take two minutes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.with_suffix(".lock")):
        if not path.exists():
            part = path.with_suffix(".part")
            part.unlink(missing_ok=True)
            make(part)
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(path)
    return path


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """The only process here; the kernel frees the lock of one that dies."""
    with path.open("w") as file:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} was held by another process for {LOCK_TIMEOUT_S:.0f} s")
            time.sleep(0.1)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
