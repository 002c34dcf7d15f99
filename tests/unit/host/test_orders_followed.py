"""Of all that is said on the fleet topic a host hears its own placements, and obeys those that count."""

import pytest

from schemas.fleet import AutoscalerStarted, FleetMessage, Kept, Placement
from schemas.topics import FLEET
from services.chassis.clock import LogClock
from services.chassis.kafka.messages import encode, message_type
from services.chassis.kafka.types import Record
from services.host.domain.orders import STALE_AFTER_MS, Order
from services.host.orders import Orders

NOW_MS = 1_700_000_000_000


@pytest.fixture
def obeyed() -> list[Order]:
    return []


@pytest.fixture
def orders(obeyed: list[Order]) -> Orders:
    return Orders("host-1", LogClock(lambda: 0.0), obeyed.append)


def record(message: FleetMessage, stamp_ms: int = NOW_MS) -> Record:
    kind = (("message-type", message_type(message).encode()),)
    return Record(FLEET, 0, 0, stamp_ms, message.instance.encode(), encode(message), kind)


def placement(epoch: int, warm: int = 1, host: str = "host-1") -> Placement:
    return Placement(instance="autoscaler-1", host=host, epoch=epoch, queues={"llm": Kept(warm=warm)})


def test_its_own_placement_is_an_order(orders: Orders, obeyed: list[Order]) -> None:
    orders.add([record(AutoscalerStarted(instance="autoscaler-1")), record(placement(7, 2))])
    assert obeyed == [Order(7, NOW_MS, {"llm": Kept(warm=2)})]


def test_that_of_another_host_is_none(orders: Orders, obeyed: list[Order]) -> None:
    orders.add([record(placement(7, host="host-2"))])
    assert obeyed == []


def test_that_of_an_earlier_leader_is_ignored(orders: Orders, obeyed: list[Order]) -> None:
    orders.add([record(placement(8, 3)), record(placement(7)), record(placement(8, 4), NOW_MS + 1)])
    assert [order.queues["llm"].warm for order in obeyed] == [3, 4]


def test_a_stale_one_is_ignored(orders: Orders, obeyed: list[Order]) -> None:
    """Time is the log's: as other records tell it."""
    orders.add([record(placement(7, host="host-2")), record(placement(9), NOW_MS - STALE_AFTER_MS - 1)])
    assert obeyed == []


def test_what_a_newer_version_says_is_passed_over(orders: Orders, obeyed: list[Order]) -> None:
    good = record(placement(7))
    strange = Record(FLEET, 0, 0, NOW_MS, b"x", b'{"host": "host-1", "queues": 3}', good.headers)
    orders.add([strange, good])
    assert len(obeyed) == 1
