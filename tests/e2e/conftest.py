"""One plane for all end-to-end tests that run on simulated engines."""

from collections.abc import AsyncIterator

import pytest

from tests.e2e.planes import RunningPlane, running_plane


@pytest.fixture(scope="session")
async def plane() -> AsyncIterator[RunningPlane]:
    """A plane on `tests/e2e/config`."""
    async with running_plane() as running:
        yield running
