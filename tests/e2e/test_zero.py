"""Everything at zero: a request starts what it needs, all of it at once, is answered, and leaves nothing running."""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord

from headway.client import HeadwayClient
from schemas.responses import InferenceResponse
from tests.e2e.planes import RunningPlane, running_plane

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

CONFIG = Path(__file__).parent / "config-at-zero"
FLEET, EVENTS = "inference-fleet", "inference-events"
BACK_S = 30.0


@pytest.fixture(scope="module")
async def plane() -> AsyncIterator[RunningPlane]:
    """Of classes that are kept at zero."""
    async with running_plane(CONFIG) as running:
        yield running


def told(records: Sequence[ConsumerRecord], kind: str) -> list[tuple[int, dict[str, Any]]]:
    """The messages of a type, each with its log time."""
    messages = [(record.timestamp, json.loads(record.value)) for record in records]
    return [(at_ms, message) for at_ms, message in messages if message["type"] == kind]


def nothing_runs(records: Sequence[ConsumerRecord], since_ms: int) -> bool:
    """Whether the host, when it last spoke, had no worker, and that was later."""
    at_ms, host = (told(records, "host-status") or [(0, {})])[-1]
    return at_ms > since_ms and not any(host["workers"].values())


async def ask(plane: RunningPlane, text: str) -> tuple[InferenceResponse, int]:
    """The response, and the log time of its run's end."""
    async with HeadwayClient(plane.endpoints.kafka) as headway:
        response = await headway.run("both", {"text": text}, timeout_s=60.0)
    return response, round(datetime.fromisoformat(response.finished_at).timestamp() * 1_000)


async def test_a_request_finds_nothing_is_answered_and_leaves_nothing(plane: RunningPlane) -> None:
    assert plane.worker_pids() == []
    response, first_ms = await ask(plane, "once")
    assert (response.status, response.output) == ("succeeded", {"text": "once"})
    events = await plane.read(EVENTS, lambda records: bool(told(records, "run-finished")))
    done_ms, _ = told(events, "step-completed")[0]
    await plane.read(FLEET, lambda records: nothing_runs(records, first_ms), BACK_S)
    again, again_ms = await ask(plane, "again")
    assert (again.status, again.output) == ("succeeded", {"text": "again"})
    fleet = await plane.read(FLEET, lambda records: nothing_runs(records, again_ms), BACK_S)
    assert plane.worker_pids() == []
    placed = [at_ms for at_ms, placement in told(fleet, "placement") if "second" in placement["queues"]]
    assert placed[0] < done_ms, "the second class was not started before the first was done"
