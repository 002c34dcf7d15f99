"""The processes of a plane, found from outside: by its endpoints file and by /proc."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from headway.plane.endpoints import FILE_NAME, SUPERVISOR, Endpoints
from loadtest.nemesis.fault import until

RETURN_S = 90.0
"""How long a part may take to be there again: without a broker services start in vain, and rest."""


class Parts:
    """The parts of the plane in `home`, as they are whenever one asks."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def endpoints(self) -> Endpoints:
        """As the plane wrote them last."""
        return Endpoints.model_validate_json((self.home / FILE_NAME).read_bytes())

    def instances(self, service: str) -> list[str]:
        """`aggregator`, `aggregator-2`."""
        return sorted(part for part in self.endpoints().pids if part.partition("-")[0] == service)

    def pid(self, part: str) -> int:
        """Of the process that runs a part now, the oldest of several; 0 when there is none."""
        return next(iter(self.pids(part)), 0)

    def pids(self, part: str) -> list[int]:
        """Those alive of a part of the plane, or of the workers of a queue by its label: `worker quick`.

        A process that is no child of the plane has only the number of one that was.
        """
        if part.startswith("worker "):
            return self.workers(part.removeprefix("worker "))
        pids = self.endpoints().pids
        pid = pids.get(part, 0)
        return [pid] if is_alive(pid) and _parent(pid) == pids[SUPERVISOR] else []

    async def living(self, part: str) -> list[int]:
        """The same, waited for while the part is being started again; none when it does not come back."""
        await until(lambda: bool(self.pids(part)), RETURN_S)
        return self.pids(part)

    def workers(self, label: str | None = None) -> list[int]:
        """Processes of all hosts' workers, or those of one queue, the oldest first."""
        hosts = [pid for part, pid in self.endpoints().pids.items() if part.partition("-")[0] == "host"]
        servers = [pid for host in hosts for pid in children(host)]
        found = sorted(pid for server in servers for pid in children(server))
        return [pid for pid in found if is_alive(pid) and _is_worker(argv(pid), label)]


def _is_worker(command: list[str], label: str | None) -> bool:
    return "--model-class" in command and label in (None, command[-1])


def send(pid: int, number: signal.Signals) -> bool:
    """Whether the process was there to be signalled."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def state(pid: int) -> str:
    """The letter that /proc has for it, `T` when it is stopped; empty when it is gone."""
    with contextlib.suppress(OSError, IndexError):
        return _stat(pid)[0]
    return ""


def is_alive(pid: int) -> bool:
    """Neither gone nor a zombie that nobody has waited for."""
    return state(pid) not in ("", "Z", "X")


def children(parent: int) -> Iterator[int]:
    """Of everything that runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        if _parent(int(folder.name)) == parent:
            yield int(folder.name)


def argv(pid: int) -> list[str]:
    """The words of its command; empty when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ").split()
    return []


def _parent(pid: int) -> int:
    """0 when it is gone."""
    with contextlib.suppress(OSError, IndexError):
        return int(_stat(pid)[1])
    return 0


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may hold anything: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
