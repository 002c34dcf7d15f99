"""One plane for all end-to-end tests that run on simulated engines."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from tests.e2e.planes import RunningPlane, running_plane
from tests.otlp import Collector, collector


@pytest.fixture(scope="session")
def traces() -> Iterator[Collector]:
    """Where the plane sends the traces of requests that ask for one."""
    with collector() as found:
        yield found


@pytest.fixture(scope="session")
async def plane(traces: Collector) -> AsyncIterator[RunningPlane]:
    """A plane on `tests/e2e/config`."""
    async with AsyncExitStack() as stack:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.endpoint)
            environment.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
            environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
            running = await stack.enter_async_context(running_plane())
        yield running
