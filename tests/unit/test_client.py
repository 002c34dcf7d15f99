"""When the client's requests leave."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client import COMPANY, GATHER_S, MANY_OUTSTANDING, HeadwayClient, until_departure

CROWD = 10


class Broker:
    """Takes requests, and acknowledges none before it is told to."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.acknowledges = asyncio.Event()

    async def send_and_wait(self, _topic: str, _value: bytes, *, key: bytes) -> None:
        self.taken.append(key)
        await self.acknowledges.wait()


@pytest.fixture
def departs(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Those who gather wait for it, in the place of the clock."""
    departs = asyncio.Event()

    async def wait(_seconds: float) -> None:
        await departs.wait()

    monkeypatch.setattr("headway.client.asyncio.sleep", wait)
    return departs


@pytest.fixture
def broker() -> Broker:
    return Broker()


def client(broker: Any, outstanding: int) -> HeadwayClient:
    headway = HeadwayClient("nowhere:9092")
    headway._producer = broker
    for number in range(outstanding):
        headway._expect(f"earlier-{number}")
    return headway


async def settled() -> None:
    """Every task has gone as far as it can."""
    loop = asyncio.get_running_loop()
    for _ in range(5):
        turned = loop.create_future()
        loop.call_soon(turned.set_result, None)
        await turned


async def test_where_many_are_outstanding_requests_gather_and_leave_together(
    broker: Broker, departs: asyncio.Event
) -> None:
    headway = client(broker, outstanding=MANY_OUTSTANDING)
    submits = [asyncio.create_task(headway.submit("ask", {}, request_id=str(n))) for n in range(CROWD)]
    await settled()
    assert broker.taken == [b"0", b"1"][:COMPANY]
    departs.set()
    await settled()
    assert broker.taken == [str(n).encode() for n in range(CROWD)]
    broker.acknowledges.set()
    assert [(await submit).request_id for submit in submits] == [str(n) for n in range(CROWD)]


async def test_a_handful_of_requests_waits_for_nobody(broker: Broker, departs: asyncio.Event) -> None:
    headway = client(broker, outstanding=MANY_OUTSTANDING - CROWD)
    submits = [asyncio.create_task(headway.submit("ask", {})) for _ in range(CROWD)]
    await settled()
    assert len(broker.taken) == CROWD
    broker.acknowledges.set()
    await asyncio.gather(*submits)


async def test_who_submits_one_request_after_another_waits_for_nobody(broker: Broker, departs: asyncio.Event) -> None:
    headway = client(broker, outstanding=MANY_OUTSTANDING)
    broker.acknowledges.set()
    for _ in range(CROWD):
        await headway.submit("ask", {})
    assert len(broker.taken) == CROWD


@given(st.floats(0, 1e6), st.floats(0, GATHER_S))
def test_departures_are_the_same_for_all_who_come_between_two(now: float, passed: float) -> None:
    departure, later = now + until_departure(now), now + passed
    assert now <= departure <= now + GATHER_S
    if later < departure - 1e-6:
        assert later + until_departure(later) == pytest.approx(departure, abs=1e-6)
