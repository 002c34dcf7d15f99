"""SIGKILL of every service and worker in turn, in the middle of a burst: nothing is lost, nothing doubled."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from headway.client import HeadwayClient
from tests.e2e.planes import RunningPlane

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

RUNS = 200


def workers(plane: RunningPlane) -> None:
    for pid in plane.worker_pids():
        os.kill(pid, signal.SIGKILL)


VICTIMS: dict[str, Callable[[RunningPlane], None]] = {
    "orchestrator": lambda plane: plane.kill("orchestrator"),
    "aggregator": lambda plane: plane.kill("aggregator"),
    "workers": workers,
    "host": lambda plane: plane.kill("host"),
}


@pytest.mark.parametrize("victim", VICTIMS)
async def test_every_run_of_a_burst_ends_with_one_response_when_a_process_is_killed(
    plane: RunningPlane, victim: str
) -> None:
    async with HeadwayClient(plane.endpoints.kafka) as headway:
        ids = [f"kill-{victim}-{number}" for number in range(RUNS)]
        for request_id in ids[: RUNS // 2]:
            await headway.submit("ask-like", {"question": "why?"}, request_id=request_id)
        await headway.wait(ids[0], timeout_s=60)
        VICTIMS[victim](plane)
        await asyncio.gather(
            *(
                headway.submit("ask-like", {"question": "why?"}, request_id=request_id)
                for request_id in ids[RUNS // 2 :]
            )
        )
    responses = await plane.responses(*ids, timeout_s=75)
    assert {response["status"] for response in responses.values()} == {"succeeded"}
    assert len({response["response_id"] for response in responses.values()}) == RUNS
