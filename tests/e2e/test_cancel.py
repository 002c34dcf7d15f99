"""A cancelled run: its engine work stops within a second, and it has one outcome, after which nothing comes."""

import json
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord

from headway.client import HeadwayClient
from schemas import ids
from schemas.config import DEFAULT_TENANT
from schemas.events import RunCancelled
from schemas.topics import EVENTS, FLEET
from tests.e2e.planes import RunningPlane

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

SLOTS = 4
"""Of the class `llm` in `tests/e2e/config`."""
LONG_MS = 45_000
STOPS_WITHIN_MS = 1_000


async def test_the_engine_stops_within_a_second_and_nothing_follows_the_outcome(plane: RunningPlane) -> None:
    cancelled = [f"cancel-{number}" for number in range(SLOTS)]
    async with HeadwayClient(plane.endpoints.kafka) as headway:
        for request_id in cancelled:
            await headway.submit("long", {"latency_ms": LONG_MS}, request_id=request_id, deadline_s=60)
        await started(plane, cancelled)
        await headway.submit("long", {"latency_ms": 0}, request_id="cancel-behind", deadline_s=60)
        for run_id in map(run_of, cancelled):
            event = RunCancelled(run_id=run_id, tenant=DEFAULT_TENANT, cancelled_by="a test")
            await plane.publish(event.model_dump_json().encode(), key=run_id.encode(), topic=EVENTS)
        behind = await headway.wait("cancel-behind", timeout_s=60)
    responses = await plane.responses(*cancelled)
    assert {response["status"] for response in responses.values()} == {"cancelled"}
    assert behind.status == "succeeded"

    events = await plane.read(EVENTS, lambda found: any(is_a("run-finished", "cancel-behind", r) for r in found))
    asked_ms = max(r.timestamp for r in events if any(is_a("run-cancelled", name, r) for name in cancelled))
    freed = next(r for r in events if is_a("step-completed", "cancel-behind", r))
    assert freed.timestamp - told(freed)["service_ms"] - asked_ms <= STOPS_WITHIN_MS
    for request_id in cancelled:
        assert [told(r)["type"] for r in events if is_of(request_id, r)][-1] == "run-finished"


async def started(plane: RunningPlane, request_ids: list[str]) -> None:
    """Until the broker has a task of each, and then the worker says that all its slots are busy."""
    run_ids = {run_of(request_id) for request_id in request_ids}
    tasks = await plane.read("inference-tasks-llm", lambda found: run_ids <= {told(r)["run_id"] for r in found})
    dispatched_ms = max(task.timestamp for task in tasks)

    def is_busy(status: ConsumerRecord) -> bool:
        its = told(status)
        return status.timestamp > dispatched_ms and its.get("model_class") == "llm" and its.get("busy") == SLOTS

    await plane.read(FLEET, lambda found: any(map(is_busy, found)))


def told(record: ConsumerRecord) -> dict[str, Any]:
    return dict(json.loads(record.value))


def run_of(request_id: str) -> str:
    return ids.run_id(DEFAULT_TENANT, request_id)


def is_of(request_id: str, record: ConsumerRecord) -> bool:
    return bool(record.key == run_of(request_id).encode())


def is_a(kind: str, request_id: str, record: ConsumerRecord) -> bool:
    return is_of(request_id, record) and told(record)["type"] == kind
