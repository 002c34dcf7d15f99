"""The plane under load: one that is up already, or one of its own that ends with the test."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from headway.cli.embedded import EmbeddedPlane
from headway.plane.endpoints import load_endpoints

CONFIG = Path(__file__).parent / "config"


@asynccontextmanager
async def plane(home: Path | None, replicas: Mapping[str, int]) -> AsyncIterator[Path]:
    """The home of a plane that is up; without one, of a new plane with `loadtest/config` and so many instances."""
    if home is not None:
        load_endpoints(home)
        yield home
        return
    with tempfile.TemporaryDirectory(prefix="headway-loadtest-") as folder:
        own = EmbeddedPlane(Path(folder), CONFIG, lambda *_: None, ports="auto", replicas=replicas)
        try:
            await own.start()
            yield Path(folder)
        finally:
            await asyncio.shield(own.stop())
