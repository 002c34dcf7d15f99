"""`make bench`: how fast a plane is, one scenario after another, a page of all, and the README's table.

Each is a process and a plane of its own. One that breaks its promise does not keep the others from being measured.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RUNS = (
    ("floor", "--duration", "10s", "--repeats", "5"),
    ("fanout", "--duration", "10s", "--repeats", "5"),
    ("fanout", "--concurrency", "512", "--duration", "10s", "--repeats", "5"),
    ("peers",),
    ("isolation", "--duration", "10s"),
    ("scaleout", "--duration", "15s"),
    ("sequential", "--duration", "20s"),
    ("enterprise", "--duration", "20s"),
    ("growth", "--duration", "10s"),
)
"""In the order of the page; 21 minutes on two cores, and longer the first time, when the peers are installed."""
TIMEOUT_S = 900.0
"""For one of them."""


def bench(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The figures, which also stand in `folder`, and the commands that failed or broke a promise."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {run: folder / f"{number:02}-{run[0]}.json" for number, run in enumerate(RUNS, 1)}
    for file in files.values():
        file.unlink(missing_ok=True)
    failed = [" ".join(run) for run, file in files.items() if not _succeeds([*run, "--json", str(file)])]
    return read(file for file in files.values() if file.exists()), failed


def read(files: Iterable[Path]) -> list[dict[str, Any]]:
    """What `--json` wrote."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def _succeeds(arguments: Sequence[str]) -> bool:
    try:
        return (
            subprocess.run([sys.executable, "-m", "loadtest", *arguments], timeout=TIMEOUT_S, check=False).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False
