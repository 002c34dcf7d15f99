"""A task that kills every worker it runs on, among neighbours in its partition, on a plane of its own."""

import asyncio
from pathlib import Path

import pytest

from headway.client import HeadwayClient
from schemas.base import RunStatus
from schemas.errors import ErrorCode
from tests.e2e.planes import running_plane

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

CONFIG = Path(__file__).parents[2] / "loadtest" / "fragile"
NEIGHBOURS = 20
POISON_AT = 5


async def test_a_task_that_kills_its_workers_is_put_aside_and_every_neighbour_is_served() -> None:
    async with running_plane(CONFIG) as plane, HeadwayClient(plane.endpoints.kafka) as headway:

        async def ask(number: int) -> RunStatus:
            value = {"number": number, "kills": number == POISON_AT, "takes_s": 0.2}
            response = await headway.run("fragile", value, request_id=f"fragile-{number}", timeout_s=100)
            return response.status

        statuses = await asyncio.gather(*(ask(number) for number in range(NEIGHBOURS + 1)))
        letters = await plane.read("inference-tasks-fragile-dlq", lambda found: len(found) > 0)
        tasks = await plane.read("inference-tasks-fragile", lambda found: len(found) > NEIGHBOURS)
        responses = await plane.responses(f"fragile-{POISON_AT}")
    assert statuses.pop(POISON_AT) is RunStatus.FAILED
    assert set(statuses) == {RunStatus.SUCCEEDED}
    [letter] = letters
    [original] = [task for task in tasks if b'"kills":true' in task.value]
    assert (letter.key, letter.value) == (original.key, original.value)
    assert dict(letter.headers)["x-error-class"] == b"poison"
    assert dict(letter.headers)["x-task-id"] == dict(original.headers)["task-id"]
    error = responses[f"fragile-{POISON_AT}"]["error"]
    assert (error["code"], error["step"], error["retryable"]) == (ErrorCode.ENGINE_FAILED, "call", False)
    assert len({task.partition for task in tasks}) == 1
