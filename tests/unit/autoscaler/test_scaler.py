"""What an autoscaler that leads says on the fleet topic."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from schemas.base import RunStatus
from schemas.fleet import Kept, Placement, ScalingDecision
from schemas.models import Scaling
from schemas.topics import EVENTS
from services.autoscaler import scaler
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import KafkaError, TopicPartition
from tests.unit.autoscaler.graphs import call, graph
from tests.unit.autoscaler.leading import ROOM, Autoscaler, Fleet, host, worker
from tests.unit.autoscaler.test_runs import finished, started

ZERO = Scaling(tier="zero", min_replicas=0)
AN_HOUR_S = 3_600.0


@asynccontextmanager
async def leading(fleet: Fleet, *, scaling: Scaling | None = None, places: bool = True) -> AsyncIterator[Autoscaler]:
    """One that leads, and has not looked yet."""
    autoscaler = Autoscaler(fleet, "a", scaling=scaling, places=places)
    async with autoscaler.running():
        await fleet.until(lambda: autoscaler.leads)
        yield autoscaler


def last_placement(fleet: Fleet, name: str = "h") -> Placement | None:
    return next((placement for placement in reversed(fleet.placements()) if placement.host == name), None)


def last_decision(fleet: Fleet) -> ScalingDecision | None:
    return next(reversed(fleet.decisions()), None)


def have_decided(fleet: Fleet, reigns: int) -> bool:
    """So many."""
    return len({decision.epoch for decision in fleet.decisions()}) == reigns


async def test_a_class_that_is_always_there_is_placed_where_there_is_room() -> None:
    fleet = Fleet()
    async with leading(fleet):
        fleet.say(host("small", capacity=None), host("large"))
        await fleet.settle()
        await fleet.until(lambda: last_placement(fleet, "large"))
    placement = last_placement(fleet, "large")
    assert placement is not None
    assert placement.queues == {"llm": Kept(warm=1)}
    assert last_placement(fleet, "small") is None, "it has not said what room it has"


async def test_nothing_is_said_before_lag_and_fleet_are_known() -> None:
    fleet = Fleet()
    async with leading(fleet) as autoscaler:
        fleet.say(host(llm=3))
        autoscaler.joins_later()
        autoscaler.hear()
        assert autoscaler.observer.why_not_yet() == "the lag was not read yet"
        await fleet.look_for(3)
        autoscaler.hear()
        assert autoscaler.observer.why_not_yet() == "the fleet has not been heard for 4 s"
        assert fleet.placements() == []
        assert fleet.decisions() == []
        await fleet.look_for(1)
        assert autoscaler.observer.why_not_yet() is None


async def test_the_whole_of_a_young_topic_is_enough() -> None:
    fleet = Fleet()
    async with leading(fleet) as autoscaler:
        fleet.say(host(llm=3))
        await fleet.look_for(1)
        assert autoscaler.observer.why_not_yet() is not None
        autoscaler.hear()
        assert autoscaler.observer.why_not_yet() is None


async def test_a_new_leader_leaves_what_runs_where_it_runs() -> None:
    fleet = Fleet()
    async with leading(fleet):
        for number in range(3):
            fleet.say(worker(f"w{number}", on="b"))
        fleet.say(worker("w3", on="b", state="asleep"), host("a"), host("b", llm=4))
        await fleet.settle()
        await fleet.until(lambda: last_placement(fleet, "b"))
    placement = last_placement(fleet, "b")
    assert placement is not None
    assert placement.queues == {"llm": Kept(warm=3)}


async def test_each_reign_has_its_epoch_on_everything_it_says() -> None:
    fleet = Fleet()
    for number in (1, 2):
        async with leading(fleet):
            fleet.say(host(f"h{number}"))
            await fleet.settle()
            await fleet.until(partial(last_placement, fleet, f"h{number}"))
    epochs = [placement.epoch for placement in fleet.placements()]
    assert len(set(epochs)) == 2
    assert epochs == sorted(epochs)


async def test_where_somebody_else_starts_workers_hosts_are_told_nothing() -> None:
    fleet = Fleet()
    async with leading(fleet, places=False):
        fleet.say(host())
        await fleet.settle()
        await fleet.until(lambda: last_decision(fleet))
    decision = last_decision(fleet)
    assert decision is not None
    assert (decision.replicas, decision.unplaced) == (1, 0)
    assert fleet.placements() == []


async def test_a_decision_is_told_with_its_reasons() -> None:
    fleet = Fleet()
    async with leading(fleet):
        fleet.say(host())
        await fleet.settle()
        await fleet.until(lambda: last_decision(fleet))
    decision = last_decision(fleet)
    assert decision is not None
    assert decision.because == "tier always"
    assert {"sustained", "lag", "floor", "ceiling", "replicas"} <= {term.term for term in decision.terms}


async def test_without_a_lag_a_decision_is_held_and_says_so() -> None:
    fleet = Fleet()
    async with leading(fleet) as autoscaler:
        fleet.say(host(llm=1), worker("w", service_ms=100.0))
        await fleet.settle()
        await fleet.until(lambda: last_decision(fleet))
        fleet.broker.away = True
        for _ in range(60):
            fleet.now_s += 1
            fleet.say(host(llm=1), worker("w", service_ms=100.0))
            autoscaler.hear()
        await fleet.until(lambda: "held" in getattr(last_decision(fleet), "because", ""))
    decision = last_decision(fleet)
    assert decision is not None
    assert decision.replicas == 1
    assert "the lag of interactive" in decision.because


async def test_a_fleet_that_falls_silent_is_told_nothing_and_not_taken_for_dead() -> None:
    fleet = Fleet()
    async with leading(fleet) as autoscaler:
        fleet.say(host(llm=2), worker("w0"), worker("w1"))
        await fleet.settle()
        await fleet.until(lambda: last_placement(fleet))
        for _ in range(30):
            await fleet.look_for(1)
        assert not autoscaler.observer.hears()
        told = len(fleet.placements())
        heard = len(fleet.decisions())
        await fleet.until(lambda: len(fleet.decisions()) > heard + 3)
        assert len(fleet.placements()) - told <= 1, "but for one that was on its way"
        fleet.say(host(llm=2), worker("w0"), worker("w1"))
        await fleet.settle()
        fleet.say(host(llm=2), worker("w0"), worker("w1"))
        autoscaler.hear()
        told = len(fleet.placements())
        await fleet.until(lambda: len(fleet.placements()) > told + 1)
    placement = last_placement(fleet)
    assert placement is not None
    assert placement.queues == {"llm": Kept(warm=2)}


@pytest.mark.parametrize("others", [0, 1])
async def test_where_an_engine_never_gets_ready_is_the_last_resort(others: int) -> None:
    fleet = Fleet()
    async with leading(fleet):
        fleet.say(host("bad", failing=["llm"], llm=1), *(host(f"good-{number}") for number in range(others)))
        await fleet.settle()
        await fleet.until(lambda: last_placement(fleet, "bad"))
    placement = last_placement(fleet, "bad")
    assert placement is not None
    assert placement.queues == ({} if others else {"llm": Kept(warm=1)})


async def test_what_a_host_was_starting_when_it_died_is_started_elsewhere() -> None:
    fleet = Fleet()
    async with leading(fleet) as autoscaler:
        fleet.say(host("dies", llm=1), host("lives"))
        await fleet.settle()
        await fleet.until(lambda: last_placement(fleet, "dies"))
        fleet.say(host("dies", llm=1))
        for _ in range(9):
            fleet.say(host("lives"))
            fleet.now_s += 1
            autoscaler.hear()
        placement = last_placement(fleet, "lives")
        assert placement is not None
        assert placement.queues == {}
        for _ in range(3):
            fleet.say(host("lives"))
            fleet.now_s += 1
            autoscaler.hear()
        await fleet.until(lambda: getattr(last_placement(fleet, "lives"), "queues", {}) == {"llm": Kept(warm=1)})


async def test_a_run_that_needs_a_class_at_zero_does_not_wait_for_the_next_look() -> None:
    fleet = Fleet()
    autoscaler = Autoscaler(fleet, "a", scaling=ZERO, look_every_s=AN_HOUR_S)
    fleet.say(host())
    await fleet.settle()
    async with autoscaler.running():
        await fleet.until(lambda: last_placement(fleet))
        nothing = last_placement(fleet)
        assert nothing is not None
        assert nothing.queues == {}
        run = run_record(EVENTS, started("r", graph(call("answer", "llm"))), partition=0)
        fleet.kafka.append(TopicPartition(EVENTS, 0), run)
        await fleet.until(lambda: getattr(last_placement(fleet), "queues", {}) == {"llm": Kept(warm=1)})
    decision = last_decision(fleet)
    assert decision is not None
    assert decision.because.startswith("pre-warm")


async def test_what_is_decided_does_not_depend_on_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaler, "FOLLOW_AGAIN_S", 0.001)
    fleet = Fleet()
    autoscaler = Autoscaler(fleet, "a", scaling=ZERO)
    opened = autoscaler._events
    failures = iter([True, True])

    @asynccontextmanager
    async def events(tail: int) -> AsyncIterator[LogReader]:
        if next(failures, False):
            raise KafkaError("a partition of the events has no leader")
        async with opened(tail) as log:
            yield log

    autoscaler.scaler._around = autoscaler.scaler._around._replace(events=events)
    fleet.say(host())
    await fleet.settle()
    async with autoscaler.running():
        await fleet.until(lambda: next(failures, None) is None and last_placement(fleet))
        run = run_record(EVENTS, started("r", graph(call("answer", "llm"))), partition=0)
        fleet.kafka.append(TopicPartition(EVENTS, 0), run)
        await fleet.until(lambda: getattr(last_placement(fleet), "queues", {}) == {"llm": Kept(warm=1)})


async def test_what_waits_for_a_group_that_never_committed_brings_a_worker() -> None:
    fleet = Fleet()
    fleet.publish(0, 3)
    async with leading(fleet, scaling=ZERO):
        fleet.say(host())
        await fleet.settle()
        await fleet.until(lambda: getattr(last_placement(fleet), "queues", {}) == {"llm": Kept(warm=1)})


async def test_what_finds_no_room_is_told() -> None:
    fleet = Fleet()
    async with leading(fleet):
        fleet.say(host(capacity=ROOM.model_copy(update={"cpu": 0.01})))
        await fleet.settle()
        await fleet.until(lambda: last_decision(fleet))
    decision = last_decision(fleet)
    assert decision is not None
    assert (decision.replicas, decision.unplaced) == (1, 1)


async def test_the_next_leader_knows_what_the_last_one_has_learned(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "autoscaler.json")
    async with leading(fleet):
        fleet.say(host(llm=1), worker("w", start_ms=7_000.0, service_ms=250.0))
        await fleet.settle()
        await fleet.until(lambda: last_decision(fleet))
    async with leading(fleet) as successor:
        assert successor.scaler.control is not None
        learned = successor.scaler.control.learned().queues["llm"]
    assert (learned.start_s, learned.service_s) == (7.0, 0.25)


async def test_the_next_leader_goes_on_with_the_window_of_the_last_one() -> None:
    fleet = Fleet()
    for number in (1, 2):
        async with leading(fleet):
            fleet.say(host(llm=1), worker("w"))
            await fleet.settle()
            await fleet.until(partial(have_decided, fleet, number))
    by_epoch = {decision.epoch: decision.steady for decision in reversed(fleet.decisions())}
    first, second = (by_epoch[epoch] for epoch in sorted(by_epoch))
    assert first is not None
    assert second is not None
    assert (second.replicas, second.changed_at) == (first.replicas, first.changed_at)


async def test_the_next_leader_knows_the_runs_that_the_last_one_saw_start() -> None:
    fleet = Fleet()
    far = {"deadline_at": fleet.now_ms() + 3_600_000}
    begun = [started(name, graph(call("answer", "llm"), pipeline=name)) for name in ("open", "over")]
    for event in (*(run.model_copy(update=far) for run in begun), finished("over", RunStatus.SUCCEEDED)):
        fleet.kafka.append(TopicPartition(EVENTS, 0), run_record(EVENTS, event, partition=0))
    async with leading(fleet, scaling=ZERO) as autoscaler:
        fleet.say(host())
        await fleet.settle()
        await fleet.until(lambda: last_placement(fleet))
        assert autoscaler.scaler.control is not None
        assert autoscaler.scaler.control.open_runs.needs()["llm"].calls == 1.0
    (first, *_) = fleet.placements()
    assert first.queues == {"llm": Kept(warm=1)}


async def test_events_that_cannot_be_read_back_in_time_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaler, "READ_BACK_S", 0.01)
    fleet = Fleet()
    autoscaler = Autoscaler(fleet, "a")

    @asynccontextmanager
    async def never(_: int) -> AsyncIterator[LogReader]:
        await asyncio.Event().wait()
        raise AssertionError
        yield

    autoscaler.scaler._around = autoscaler.scaler._around._replace(events=never)
    fleet.say(host())
    await fleet.settle()
    async with autoscaler.running():
        await fleet.until(lambda: last_placement(fleet))
