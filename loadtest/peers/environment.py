"""Where a peer's packages are: an environment of its own, made when it is first wanted, and kept."""

import hashlib
import os
import platform
import shutil
import sys
from pathlib import Path

from headway.plane.process import run_once
from headway.plane.reaper import Reaper
from loadtest.peers.catalog import Peer

CACHE = Path(".headway/peers")
"""In the working directory, as a plane's home is."""
DONE = "installed"
"""A file in an environment that is whole: one that was interrupted is made anew."""
INSTALL_TIMEOUT_S = 600.0


async def environment(peer: Peer, reaper: Reaper) -> Path:
    """Its folder. Raises PlaneError with the last words of an installer that failed, OSError where there is none."""
    folder = (CACHE / f"{peer.name}-{_digest(peer)}").resolve()
    if not (folder / DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for argv in _commands(peer, folder):
            await run_once(argv, os.environ, folder / "install.log", timeout_s=INSTALL_TIMEOUT_S, reaper=reaper)
        (folder / DONE).touch()
    return folder


def interpreter(peer: Peer, folder: Path) -> str:
    """What runs the peer's driver."""
    return str(folder / "venv" / "bin" / "python") if peer.packages else sys.executable


def _commands(peer: Peer, folder: Path) -> list[list[str]]:
    uv = str(Path(sys.executable).parent / "uv")
    commands = []
    if peer.packages:
        commands.append([uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv")])
        commands.append([uv, "pip", "install", "--quiet", "--python", interpreter(peer, folder), *peer.packages])
    if peer.npm:
        options = ["--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund"]
        commands.append(["npm", "install", *options, *peer.npm])
    return commands


def _digest(peer: Peer) -> str:
    contents = repr((peer.packages, peer.npm, platform.python_version(), platform.machine()))
    return hashlib.sha256(contents.encode()).hexdigest()[:8]
