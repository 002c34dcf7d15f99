"""Exactly one leads, whoever comes and goes; its successor's epoch is higher."""

import pytest

from schemas.fleet import AutoscalerStarted
from schemas.topics import FLEET
from services.autoscaler import leadership
from services.autoscaler.leadership import Leadership
from services.chassis.kafka import supervision
from services.chassis.kafka.in_memory import InMemoryConsumer
from services.chassis.kafka.types import KafkaError, RebalanceListener, TopicPartition
from tests.unit.autoscaler.leading import Autoscaler, Fleet


def epochs(fleet: Fleet) -> list[int]:
    """The offsets of the records with which reigns began."""
    log = fleet.kafka.log(TopicPartition(FLEET, 0))
    said = zip(log, fleet.said(), strict=True)
    return [record.offset for record, status in said if isinstance(status, AutoscalerStarted)]


async def test_of_two_exactly_one_leads() -> None:
    fleet = Fleet()
    first, second = Autoscaler(fleet, "first"), Autoscaler(fleet, "second")
    async with first.running(), second.running():
        await fleet.until(lambda: first.leads != second.leads and second.leadership.why_not_ready() is None)
        assert first.leadership.why_not_ready() is None, "who stands by is ready as well"


async def test_a_successor_has_a_higher_epoch() -> None:
    fleet = Fleet()
    first, second = Autoscaler(fleet, "first"), Autoscaler(fleet, "second")
    async with first.running():
        await fleet.until(lambda: first.leads)
        async with second.running():
            await fleet.until(lambda: len(epochs(fleet)) == 2)
    assert not first.leads
    assert not second.leads
    assert epochs(fleet) == sorted(set(epochs(fleet)))


async def test_the_one_that_stands_by_takes_over_from_one_that_leaves() -> None:
    fleet = Fleet()
    first, second = Autoscaler(fleet, "first"), Autoscaler(fleet, "second")
    async with second.running():
        async with first.running():
            await fleet.until(lambda: first.leads != second.leads)
        await fleet.until(lambda: second.leads)


async def test_one_that_its_group_has_expelled_leads_no_more_and_then_again() -> None:
    fleet = Fleet()
    only = Autoscaler(fleet, "only")
    async with only.running():
        await fleet.until(lambda: only.leads)
        assert only.consumer is not None
        only.consumer.expel()
        await fleet.until(lambda: len(epochs(fleet)) == 2)
        await fleet.until(lambda: only.leads)


async def test_a_member_that_cannot_begin_its_reign_leaves_before_it_joins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "RESTART_S", 0.001)
    monkeypatch.setattr(leadership, "POLL_S", 0.001)
    fleet = Fleet()
    member = Autoscaler(fleet, "a")
    joined: list[InMemoryConsumer] = []

    def join(listener: RebalanceListener) -> InMemoryConsumer:
        joined.append(member._member(listener))
        return joined[-1]

    producer = fleet.kafka.producer()
    await producer.stop()
    leading = Leadership(join, producer, fleet.clock, "a", member.scaler.lead)
    with pytest.raises(KafkaError, match="the producer has stopped"):
        await leading.run()
    assert len(joined) == supervision.MAX_FAILURES
    assert all(consumer._stopped for consumer in joined)


async def test_a_reign_that_fails_ends_the_process() -> None:
    fleet = Fleet()

    async def fail(_: int) -> None:
        raise RuntimeError("a bug")

    leading = Leadership(Autoscaler(fleet, "a")._member, fleet.kafka.producer(), fleet.clock, "a", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        await leading.run()
