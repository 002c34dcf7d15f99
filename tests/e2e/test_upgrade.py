"""A rolling restart, as an upgrade of a plane goes: every service in turn, under load."""

import pytest

from loadtest.context import CONFIG, Context
from loadtest.generator import Load
from loadtest.scenarios.rolling import roll
from tests.e2e.planes import running_plane

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

RUNS = 300


async def test_a_rolling_restart_of_every_service_fails_no_request() -> None:
    async with running_plane(CONFIG) as plane:
        figures = await roll(Context(Load(duration_s=1.0), plane.home, print), RUNS, rounds=1)
    assert figures["broken"] == []
    assert figures["restart_ms"].keys() == {"aggregator", "orchestrator", "host"}
    assert figures["succeeded"] == figures["requests"] >= RUNS / 2
