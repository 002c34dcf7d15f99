"""The folder of a plane: one plane at a time."""

import fcntl
import os
from pathlib import Path

from headway.plane.errors import PlaneError


class HomeLock:
    """An exclusive lock on a home. The kernel releases it with the process, however that ends."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self) -> None:
        """Raises a PlaneError that names the process which holds the home."""
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise PlaneError(
                f"the home {self._home} cannot be written ({error.strerror}): choose another --home"
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise PlaneError(
                f"a plane is already up in {self._home} (pid {holder}): stop that one, or choose another --home"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
