"""One system, measured: its driver runs in the system's own environment, and ends with all that it started."""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loadtest
from headway.plane.errors import PlaneError
from headway.plane.ports import free_ports
from headway.plane.process import run_once
from headway.plane.reaper import Reaper
from loadtest.peers import figures
from loadtest.peers.catalog import Peer
from loadtest.peers.driving import Plan, Trial
from loadtest.peers.environment import environment, interpreter

PORTS = 4
REPORT = "report"
SET_UP_S = 180.0
"""How long a driver may take beside its trials: to start what it measures, and to take it down again."""


async def measured(peer: Peer, trials: Sequence[Trial], kafka: str, reaper: Reaper) -> dict[str, Any]:
    """Its figures, or `{"unavailable": reason}`: what cannot be measured is told, and hides no other."""
    try:
        installed = await environment(peer, reaper)
        with tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as folder:
            plan = _plan(trials, installed, Path(folder), kafka)
            await _drive(peer, plan, Path(folder), reaper)
            return figures.system(await asyncio.to_thread(_lines, Path(folder)))
    except (PlaneError, OSError, ValueError) as error:
        return {"unavailable": f"{type(error).__name__}: {error}"}


def _plan(trials: Sequence[Trial], installed: Path, folder: Path, kafka: str) -> Plan:
    data = folder / "data"
    data.mkdir()
    return Plan(tuple(trials), str(installed), str(data), tuple(free_ports(PORTS)), kafka)


async def _drive(peer: Peer, plan: Plan, folder: Path, reaper: Reaper) -> None:
    """Runs its driver. Of Headway it sees this package alone: beside the rest lie other versions of its packages."""
    source = folder / "source"
    source.mkdir()
    (source / "loadtest").symlink_to(Path(loadtest.__file__).parent)
    module = f"loadtest.peers.drivers.{peer.driver}"
    await run_once(
        [interpreter(peer, Path(plan.installed)), "-m", module, plan.as_argument(), str(folder / REPORT)],
        {**os.environ, "PYTHONPATH": str(source)},
        folder / "log",
        timeout_s=sum(trial.warm_up_s + trial.duration_s for trial in plan.trials) + SET_UP_S,
        reaper=reaper,
        folder=Path(plan.folder),
    )


def _lines(folder: Path) -> list[str]:
    return (folder / REPORT).read_text(encoding="utf-8").splitlines()
