"""A disk that takes nothing: the blob folder out of use, or a process that may write no file any longer."""

import asyncio
import ctypes
import os
import resource
from pathlib import Path

from loadtest.nemesis.fault import Evidence
from loadtest.nemesis.parts import is_alive

AT_FDCWD = -100
RENAME_EXCHANGE = 2


async def break_blob_folder(folder: Path, for_s: float) -> Evidence:
    """A file stands in the folder's place for a while: nothing can be put, nothing read, and nothing is missing."""
    stand_in = folder.with_name(f"{folder.name}.broken")
    _stand_in(folder, stand_in)
    try:
        refused = _refuses(folder)
        await asyncio.sleep(for_s)
    finally:
        _exchange(folder, stand_in)
        stand_in.unlink()
    return Evidence(f"{folder.name}: {refused}, for {for_s:g} s") if refused else Evidence()


async def forbid_files(pid: int, for_s: float) -> Evidence:
    """No file of this process may grow (EFBIG): what a full disk is to it, its log included."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    limit = resource.prlimit(pid, resource.RLIMIT_FSIZE)[0]
    await asyncio.sleep(for_s)
    if is_alive(pid):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    return Evidence(f"pid {pid} could write files of {limit} bytes for {for_s:g} s") if limit == 0 else Evidence()


def _stand_in(folder: Path, stand_in: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stand_in.write_bytes(b"")
    _exchange(folder, stand_in)


def _refuses(folder: Path) -> str:
    """What the file system says to a file in it."""
    try:
        (folder / "probe").write_bytes(b"x")
    except OSError as error:
        return error.strerror or repr(error)
    return ""


def _exchange(one: Path, other: Path) -> None:
    """In one step: at no moment is there nothing, which would be a blob that is lost."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), f"{one} and {other} cannot change places")
