"""Admission behind its gate: requests wait, are let in, or are refused with an answer."""

import asyncio

import pytest

from schemas.base import BlobRef, Priority
from schemas.errors import ErrorCode
from schemas.events import RunRejected, RunStarted
from services.chassis.blobs import InMemoryBlobStore, Outputs
from services.chassis.clock import LogClock
from services.chassis.metrics import Metrics
from services.orchestrator.handlers import Admission
from tests.unit.orchestrator.gates import Announcements, gate
from tests.unit.orchestrator.test_admission import ASK, FakeCatalog
from tests.unit.orchestrator.test_handlers import HungStore, event, outcomes, request


class CountingStore(InMemoryBlobStore):
    puts = 0

    async def put(self, content: bytes) -> BlobRef:
        self.puts += 1
        return await super().put(content)


def admission(
    said: Announcements, metrics: Metrics | None = None, store: InMemoryBlobStore | None = None
) -> Admission:
    metrics = metrics or Metrics()
    outputs = Outputs(store or InMemoryBlobStore())
    return Admission(FakeCatalog, outputs, LogClock(), metrics, gate(said, 10, metrics))


async def test_a_full_plane_refuses_with_an_answer_that_says_when_to_come_again() -> None:
    ((outgoing,),) = await outcomes(admission(Announcements(10)), request(ASK))
    rejected = event(outgoing)
    assert isinstance(rejected, RunRejected)
    assert (rejected.error.code, rejected.error.retryable) == (ErrorCode.OVERLOADED, True)
    assert rejected.error.retry_after_ms is not None
    assert 1_000 <= rejected.error.retry_after_ms <= 60_000
    assert (rejected.request_id, rejected.pipeline) == ("r0", "ask")
    assert "10 runs are open" in rejected.error.message


async def test_a_batch_of_requests_fills_what_is_left_and_no_more() -> None:
    requests = [request(ASK, offset) for offset in range(5)]
    found = [type(event(one)) for (one,) in await outcomes(admission(Announcements(8)), *requests)]
    assert found == [RunStarted, RunStarted, RunRejected, RunRejected, RunRejected]


async def test_the_lane_that_was_asked_for_decides() -> None:
    asked = [request({**ASK, "priority": priority}, offset) for offset, priority in enumerate(Priority)]
    found = [type(event(one)) for (one,) in await outcomes(admission(Announcements(8)), *asked)]
    assert found == [RunStarted, RunRejected, RunRejected]


async def test_what_would_be_refused_anyway_takes_no_room_and_is_told_its_own_reason() -> None:
    wrong = [request({**ASK, "pipeline": "nope"}, offset) for offset in range(20)]
    found = await outcomes(admission(Announcements(9)), *wrong, request(ASK, 20))
    codes = {answer.error.code for (one,) in found[:-1] if isinstance(answer := event(one), RunRejected)}
    assert codes == {ErrorCode.UNKNOWN_PIPELINE}
    assert isinstance(event(found[-1][0]), RunStarted)


async def test_what_cannot_start_after_all_takes_no_room() -> None:
    """As when the store is away."""
    handler = admission(Announcements(8), store=HungStore(1))
    large = {**ASK, "input": {"question": "x" * 20_000}}
    for offset in range(5):
        ((failed,),) = await outcomes(handler, request(large, offset))
        assert isinstance(rejected := event(failed), RunRejected)
        assert rejected.error.code is ErrorCode.INTERNAL
    requests = [request(ASK, offset) for offset in range(5, 8)]
    found = [type(event(one)) for (one,) in await outcomes(handler, *requests)]
    assert found == [RunStarted, RunStarted, RunRejected]


async def test_nothing_is_stored_for_a_refused_request() -> None:
    store = CountingStore()
    large = {**ASK, "input": {"question": "x" * 20_000}}
    await outcomes(admission(Announcements(10), store=store), request(large))
    assert store.puts == 0
    await outcomes(admission(Announcements(0), store=store), request(large))
    assert store.puts == 1


async def test_the_refused_are_counted_by_lane() -> None:
    metrics = Metrics()
    handler = admission(Announcements(9), metrics)
    assert 'headway_requests_shed_total{priority="batch"} 0.0' in metrics.exposition().decode()
    await outcomes(handler, request({**ASK, "priority": "batch"}), request(ASK, 1))
    exposed = metrics.exposition().decode()
    assert 'headway_requests_shed_total{priority="batch"} 1.0' in exposed
    assert 'headway_requests_shed_total{priority="interactive"} 0.0' in exposed


async def test_while_nobody_announces_requests_wait_and_then_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    said = Announcements(None)
    waiting = asyncio.create_task(outcomes(admission(said), request(ASK)))
    async with asyncio.timeout(5):
        while "admission_waits" not in capsys.readouterr().err:  # noqa: ASYNC110  the log is all that tells
            await asyncio.sleep(0.001)
    assert not waiting.done()
    said.open_runs = 0
    async with asyncio.timeout(5):
        ((outgoing,),) = await waiting
    assert isinstance(event(outgoing), RunStarted)
