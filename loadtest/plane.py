"""The plane under load: one that is up already, or one of its own that ends with the test."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from headway.cli.embedded import EmbeddedPlane
from headway.plane.endpoints import load_endpoints
from headway.plane.supervisor import Progress
from loadtest.context import Scenario

UNOBSERVED = {"autoscaler": 0}
"""Most of what is measured needs no autoscaler, and its collector takes CPU time beside the parts under load."""


@asynccontextmanager
async def plane(home: Path | None, scenario: Scenario) -> AsyncIterator[Path]:
    """The home of a plane that is up; without one, of a new plane as the scenario wants it, in a temporary home.

    The home stays: whoever finds nothing wrong removes it.
    """
    if home is not None:
        load_endpoints(home)
        yield home
        return
    folder = Path(tempfile.mkdtemp(prefix="headway-loadtest-"))
    replicas = {**UNOBSERVED, **scenario.replicas}
    config = scenario.folder(folder)
    own = EmbeddedPlane(folder, config, _teller(folder), ports="auto", replicas=replicas, env=scenario.env)
    try:
        await own.start()
        yield folder
    finally:
        await asyncio.shield(own.stop())


def _teller(home: Path) -> Progress:
    """What the plane reports, in a log of its own."""

    def tell(part: str, state: str, detail: str) -> None:
        log = home / "logs" / "plane.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC).isoformat()} {part} {state} {detail}\n")

    return tell
