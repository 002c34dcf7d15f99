"""The real models, loaded once for the run by the first test that asks for them."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.pipelines_in_process import InProcess


@pytest.fixture(scope="session")
async def pipelines(pytestconfig: pytest.Config) -> AsyncIterator[InProcess]:
    """`infra/config`, in this process. The indexes are built by the first run in a clone (25 s of one core)."""
    assert pytestconfig.cache is not None
    running = InProcess(pytestconfig.cache.mkdir("headway-home"))
    try:
        await running.start()
        yield running
    finally:
        await running.stop()
