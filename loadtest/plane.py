"""The plane under load: one that is up already, or one of its own that ends with the test."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headway.cli.embedded import EmbeddedPlane
from headway.plane.endpoints import Endpoints, load_endpoints

CONFIG = Path(__file__).parent / "config"


@asynccontextmanager
async def plane(home: Path | None) -> AsyncIterator[Endpoints]:
    """The endpoints of the plane in `home`; without one, of a new plane with `loadtest/config`."""
    if home is not None:
        yield load_endpoints(home)
        return
    with tempfile.TemporaryDirectory(prefix="headway-loadtest-") as folder:
        own = EmbeddedPlane(Path(folder), CONFIG, lambda *_: None, ports="auto")
        try:
            yield await own.start()
        finally:
            await asyncio.shield(own.stop())
