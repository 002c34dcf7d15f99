"""The picture of the fleet: the newest status of everything that spoke lately, by the log's time."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from schemas.fleet import (
    BreakerState,
    CircuitState,
    FleetMessage,
    FleetStatus,
    HostStatus,
    OpenRuns,
    ServiceStatus,
    WorkerStatus,
)
from schemas.topics import FLEET
from services.chassis.clock import LogClock
from services.chassis.fleet import EXPIRY_MS, SILENT_S, FleetPublisher, FleetView
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.messages import encode
from services.chassis.kafka.types import ProducerDeadError, Record

NOON_MS = 1_700_000_000_000


class Monotonic:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def said(status: FleetMessage, at_ms: int = 0) -> Record:
    return Record(FLEET, 0, 0, NOON_MS + at_ms, status.instance.encode(), encode(status))


def open_runs(instance: str, runs: dict[int, int]) -> OpenRuns:
    return OpenRuns(instance=instance, by_partition=runs)


def worker(model_class: str, busy: int) -> WorkerStatus:
    return WorkerStatus(
        instance="w", host="h", model_class=model_class, backend="local", state="warm", slots=4, busy=busy, ready_at=1
    )


def breaker(model_class: str) -> BreakerState:
    return BreakerState(instance="w", model_class=model_class, backend="local", state=CircuitState.OPEN)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  the subject has no event to wait for
            await asyncio.sleep(0.001)


class TestView:
    def test_the_newest_status_of_an_instance_counts(self) -> None:
        view = FleetView(LogClock(Monotonic()))
        view.add([said(open_runs("a", {0: 1})), said(open_runs("a", {0: 5}), at_ms=1)])
        assert view.of(OpenRuns) == [open_runs("a", {0: 5})]

    def test_a_worker_speaks_for_each_of_its_classes(self) -> None:
        view = FleetView(LogClock(Monotonic()))
        view.add([said(worker("llm", 1)), said(worker("embedding", 2)), said(worker("llm", 3))])
        assert view.of(WorkerStatus) == [worker("embedding", 2), worker("llm", 3)]

    def test_a_workers_breakers_are_beside_its_statuses(self) -> None:
        view = FleetView(LogClock(Monotonic()))
        view.add([said(worker("llm", 1)), said(breaker("llm")), said(breaker("embedding"))])
        assert view.of(BreakerState) == [breaker("llm"), breaker("embedding")]
        assert view.of(WorkerStatus) == [worker("llm", 1)]

    def test_kinds_do_not_mix(self) -> None:
        view = FleetView(LogClock(Monotonic()))
        view.add([said(open_runs("a", {})), said(ServiceStatus(instance="a", service="aggregator", revision=3))])
        assert view.of(ServiceStatus) == [ServiceStatus(instance="a", service="aggregator", revision=3)]

    def test_statuses_stand_in_log_order_so_that_the_later_claim_wins(self) -> None:
        view = FleetView(LogClock(Monotonic()))
        view.add([said(open_runs("zombie", {7: 10})), said(open_runs("owner", {7: 2})), said(open_runs("a", {}))])
        by_partition: dict[int, int] = {}
        for status in view.of(OpenRuns):
            by_partition |= status.by_partition
        assert by_partition == {7: 2}

    def test_what_is_not_repeated_expires(self) -> None:
        view = FleetView(LogClock(monotonic := Monotonic()))
        view.add([said(open_runs("a", {}))])
        monotonic.now_s += EXPIRY_MS / 1_000
        assert view.of(OpenRuns)
        monotonic.now_s += 0.001
        assert view.of(OpenRuns) == []

    def test_a_status_read_too_late_has_expired(self) -> None:
        view = FleetView(LogClock(Monotonic()))
        view.add([said(open_runs("old", {})), said(open_runs("new", {}), at_ms=EXPIRY_MS + 1)])
        assert [status.instance for status in view.of(OpenRuns)] == ["new"]

    def test_what_this_version_does_not_know_is_passed_over(self) -> None:
        view = FleetView(LogClock(Monotonic()))
        unknown = [b"", b"{", b'{"type": "placement", "instance": "x"}', b'{"type": "open-runs"}', None]
        records = [Record(FLEET, 0, 0, NOON_MS, None, value) for value in unknown]
        view.add([*records, said(open_runs("a", {}))])
        assert len(view.of(FleetMessage)) == 1

    async def test_it_follows_the_log(self) -> None:
        class Log:
            def __init__(self) -> None:
                self.batches: asyncio.Queue[Sequence[Record]] = asyncio.Queue()

            async def follow(self, timeout_s: float) -> Sequence[Record]:
                return await self.batches.get()

        view, log = FleetView(LogClock(Monotonic())), Log()
        following = asyncio.create_task(view.run(log))
        log.batches.put_nowait([said(open_runs("a", {}))])
        log.batches.put_nowait([])
        await until(lambda: bool(view.of(OpenRuns)))
        following.cancel()


class TestPublisher:
    async def test_statuses_are_repeated_and_their_acknowledgements_tell_the_time(self) -> None:
        kafka = InMemoryKafka(clock=lambda: NOON_MS)
        kafka.create_topic(FLEET, 1)
        clock = LogClock(Monotonic())
        publisher = FleetPublisher(
            kafka.producer(), clock, lambda: [host(1), open_runs("h", {0: 2})], interval_s=0.001
        )
        running = asyncio.create_task(publisher.run())
        await until(lambda: len(kafka.records(FLEET)) >= 4)
        running.cancel()
        assert clock.now_ms() == NOON_MS
        view = FleetView(LogClock(Monotonic()))
        view.add(kafka.records(FLEET))
        assert view.of(HostStatus) == [host(1)]

    async def test_a_change_that_others_wait_for_is_published_at_once(self) -> None:
        kafka = InMemoryKafka(clock=lambda: NOON_MS)
        kafka.create_topic(FLEET, 1)
        current: list[FleetStatus] = [host(1)]
        publisher = FleetPublisher(kafka.producer(), LogClock(), lambda: current[-1:], interval_s=3_600)
        running = asyncio.create_task(publisher.run())
        await until(lambda: len(kafka.records(FLEET)) == 1)
        current.append(host(2))
        publisher.hurry()
        await until(lambda: len(kafka.records(FLEET)) == 2)
        running.cancel()
        assert kafka.records(FLEET)[-1].value == encode(host(2))
        assert kafka.records(FLEET)[-1].header("message-type") == "host-status"

    async def test_what_cannot_be_said_now_is_said_again(self, capsys: pytest.CaptureFixture[str]) -> None:
        kafka = InMemoryKafka(clock=lambda: NOON_MS)
        publisher = FleetPublisher(kafka.producer(), LogClock(), lambda: [host(1)], interval_s=0.001)
        running = asyncio.create_task(publisher.run())
        await until(lambda: "status_not_published" in capsys.readouterr().err)
        kafka.create_topic(FLEET, 1)
        await until(lambda: bool(kafka.records(FLEET)))
        running.cancel()

    async def test_it_is_ready_while_the_broker_acknowledges(self) -> None:
        kafka, monotonic = InMemoryKafka(clock=lambda: NOON_MS), Monotonic()
        kafka.create_topic(FLEET, 1)
        publisher = FleetPublisher(kafka.producer(), LogClock(), lambda: [host(1)], monotonic=monotonic)
        assert publisher.why_not_ready() == "Kafka has acknowledged nothing yet"
        await publisher.publish()
        monotonic.now_s = SILENT_S
        assert publisher.why_not_ready() is None
        monotonic.now_s += 0.1
        assert publisher.why_not_ready() == "no acknowledgement for 12 s"
        await publisher.publish()
        assert publisher.why_not_ready() is None

    async def test_a_dead_producer_ends_it(self) -> None:
        kafka = InMemoryKafka(clock=lambda: NOON_MS)
        kafka.create_topic(FLEET, 1)
        producer = kafka.producer()
        producer.die()
        with pytest.raises(ProducerDeadError):
            await FleetPublisher(producer, LogClock(), lambda: [host(1)]).run()


def host(restarts: int) -> HostStatus:
    return HostStatus(instance="h", workers={"llm": 1}, restarts=restarts)
