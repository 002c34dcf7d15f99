"""How each service is put together for the simulation: the one file that knows their constructors.

What stands in `services/*/app.py` stands here again, on the simulated plane instead of Kafka and Redis.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol
from unittest.mock import patch

import structlog

from schemas.base import LogTime
from schemas.events import RequestCoordinates
from schemas.fleet import BreakerState, FleetMessage, OpenRuns, ServiceStatus, WorkerStatus
from schemas.models import Queue
from schemas.redis_keys import EndedRun
from schemas.topics import (
    AGGREGATOR_GROUP,
    EVENTS,
    FLEET,
    IDEMPOTENCY_WINDOW_MS,
    JOINS,
    ORCHESTRATOR_JOINS_GROUP,
    ORCHESTRATOR_REQUESTS_GROUP,
    REQUESTS,
)
from services.aggregator.actions import Actions
from services.aggregator.handlers import Join
from services.aggregator.snapshots import Snapshots, SnapshotStore
from services.chassis.blobs import BlobStore, Outputs
from services.chassis.clock import LogClock
from services.chassis.config.folder import load_folder
from services.chassis.config.live import LiveConfig
from services.chassis.fleet import FleetPublisher, FleetView
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.stream import BatchHandler, PartitionState, Stream
from services.chassis.kafka.types import (
    Consumer,
    ConsumerSettings,
    Producer,
    RebalanceListener,
    Record,
    TopicPartition,
)
from services.chassis.metrics import Metrics
from services.orchestrator.adapters.counted_producer import CountedProducer
from services.orchestrator.domain.door import Announcement, Door
from services.orchestrator.gate import Gate
from services.orchestrator.handlers import Admission, Dispatch
from services.worker.claims import Claims
from services.worker.domain.engine import Engine
from services.worker.domain.ports import ClaimStore, DeadRuns
from services.worker.ended_runs import EndedRuns
from services.worker.handlers import Surroundings
from services.worker.member import Member, Name

EVENTS_PARTITIONS = 2
MAX_OPEN_RUNS = 1_000
FLEET_EVERY_S = 4.0
STATUSES_EVERY_S = 4.0
DRAIN_S = 3.0

LIVE = LiveConfig(1, load_folder(Path(__file__).parent / "plane")[0])  # type: ignore[arg-type]
METRICS = Metrics()
"""Read by nobody here: one registry serves every process of every run."""


@dataclass(frozen=True, slots=True)
class Tempo:
    """How fast some things go, drawn from the seed: what one tempo hides another shows."""

    max_batch: int
    """Small: catching up takes a while, and others act meanwhile."""
    commit_interval_s: float
    """Large: much is done and not committed."""
    snapshot_records: int
    snapshot_s: float
    tick_s: float
    delay_s: float
    """How long a record may be on its way to the log."""
    fetch_s: float
    """And from there to a reader."""

    @classmethod
    def drawn(cls, random: Random) -> "Tempo":
        """One of some hundred."""
        return cls(
            max_batch=random.choice((2, 5, 500)),
            commit_interval_s=random.choice((0.5, 2.0, 5.0)),
            snapshot_records=random.choice((0, 8, 1_000)),
            snapshot_s=random.choice((1.0, 6.0)),
            tick_s=random.choice((0.1, 0.5)),
            delay_s=random.choice((0.02, 0.1, 0.6)),
            fetch_s=random.choice((0.02, 0.1, 0.3)),
        )


class Blobs(BlobStore, SnapshotStore, Protocol):
    """The one store of a plane."""


class Surrounding(Protocol):
    """One process, as its service sees it."""

    name: str
    tempo: Tempo
    stopping: asyncio.Event

    def monotonic(self) -> float: ...

    def consumer(self, settings: ConsumerSettings, listener: RebalanceListener) -> Consumer: ...

    def producer(self) -> Producer: ...

    def blobs(self) -> Blobs: ...

    def claim_store(self) -> ClaimStore: ...

    def dead_runs(self) -> DeadRuns: ...

    def stop_run(self, run: EndedRun) -> None: ...

    def engine(self, queue: Queue) -> Engine: ...

    def record(self, tp: TopicPartition, offset: int) -> Record: ...


Main = Callable[[Surrounding], Awaitable[None]]
Work = Coroutine[Any, Any, Any]
Place = tuple[str, str]
"""A group, and the topic it reads."""


async def aggregator(process: Surrounding) -> None:
    """Folds the events topic."""
    producer, clock, blobs, log = process.producer(), LogClock(process.monotonic), process.blobs(), _Log(process)
    actions = Actions(
        clock=clock, producer=producer, outputs=Outputs(blobs), requests=log, stopper=log, metrics=METRICS
    )
    snapshots = Snapshots(blobs, IDEMPOTENCY_WINDOW_MS, process.monotonic, process.tempo.snapshot_s)
    join = Join(actions, window_ms=IDEMPOTENCY_WINDOW_MS, clock=clock, producer=producer, snapshots=snapshots)
    stream = _stream(process, (AGGREGATOR_GROUP, EVENTS), producer, join, join)

    def statuses() -> Sequence[FleetMessage]:
        return (OpenRuns(instance=process.name, by_partition=join.open_runs()),)

    publisher = FleetPublisher(producer, clock, statuses, FLEET_EVERY_S)
    work = [stream.run(), join.tick(), join.keep_snapshots(), publisher.run(), _announce(join, publisher)]
    await _serve(process, work)
    await stream.stop()
    await actions.stop()


async def orchestrator(process: Surrounding) -> None:
    """Admits requests, and dispatches ready steps."""
    producer, clock, outputs = process.producer(), LogClock(process.monotonic), Outputs(process.blobs())
    view = FleetView(clock)

    def announced() -> list[Announcement]:
        return [Announcement(at, said.by_partition) for at, said in view.stamped(OpenRuns)]

    gate = Gate(announced, Door(MAX_OPEN_RUNS, EVENTS_PARTITIONS), clock, METRICS)
    dispatch = Dispatch(lambda: LIVE, outputs, clock, METRICS)
    admission = Admission(lambda: LIVE, outputs, clock, METRICS, gate)
    counted = CountedProducer(producer, dispatch.outstanding)
    joins = _stream(process, (ORCHESTRATOR_JOINS_GROUP, JOINS), counted, dispatch)
    requests = _stream(process, (ORCHESTRATOR_REQUESTS_GROUP, REQUESTS), producer, admission)
    publisher = FleetPublisher(producer, clock, lambda: [_status(process)], FLEET_EVERY_S)
    fleet = LogReader(lambda listener: process.consumer(ConsumerSettings(None, (FLEET,)), listener), tail=20)
    await fleet.start()
    work = [joins.run(), requests.run(), publisher.run(), view.run(fleet), _report(view, dispatch)]
    await _serve(process, work)
    await asyncio.gather(joins.stop(), requests.stop())


async def worker(process: Surrounding, labels: Collection[str]) -> None:
    """Executes the tasks of some queues."""
    producer, clock = process.producer(), LogClock(process.monotonic)
    claims = Claims(process.claim_store(), process.monotonic)
    around = Surroundings(producer, clock, Outputs(process.blobs()), claims, process.monotonic)
    ended, name = EndedRuns(process.monotonic), Name(process.name, "host")
    members: list[Member] = []

    def news() -> Sequence[FleetMessage]:
        return [said for member in members for said in member.news(name)]

    publisher = FleetPublisher(producer, clock, news, FLEET_EVERY_S)
    members += [
        Member(
            queue, process.engine(queue), around, ended,
            consumers=process.consumer, metrics=METRICS, on_change=publisher.hurry,
        )
        for queue in LIVE.queues.values()
        if queue.label in labels
    ]  # fmt: skip
    await publisher.publish()
    work: list[Work] = [publisher.run(), claims.keep(ended.add), ended.follow(process.dead_runs())]
    for member in members:
        work += [member.watch(), member.guard(), member.run()]
    await _serve(process, work)
    await asyncio.gather(*(member.drain(DRAIN_S) for member in members))
    await claims.release()


async def _announce(join: Join, publisher: FleetPublisher) -> None:
    while True:
        await join.resumed.wait()
        join.resumed.clear()
        publisher.hurry()


class _Log:
    """What the join needs beside its topic."""

    def __init__(self, process: Surrounding) -> None:
        self._process = process

    async def fetch(self, coordinates: Collection[RequestCoordinates]) -> dict[RequestCoordinates, Record | None]:
        """The requests, read again."""
        return {
            each: self._process.record(TopicPartition(each.topic, each.partition), each.offset)
            for each in coordinates
        }

    def stop_run(self, run_id: str, deadline_at: LogTime) -> None:
        """Tells the workers."""
        self._process.stop_run(EndedRun(run_id, deadline_at))


def _stream(
    process: Surrounding, place: Place, producer: Producer, handler: BatchHandler, state: PartitionState | None = None
) -> Stream:
    settings, tempo = ConsumerSettings(group=place[0], topics=place[1:]), process.tempo
    return Stream(
        lambda listener: process.consumer(settings, listener),
        producer,
        handler,
        max_batch=tempo.max_batch,
        commit_interval_s=tempo.commit_interval_s,
        state=state,
    )


def _status(process: Surrounding) -> FleetMessage:
    return ServiceStatus(instance=process.name, service="orchestrator", revision=1)


async def _report(view: FleetView, dispatch: Dispatch) -> None:
    while True:
        workers = view.stamped(WorkerStatus)
        dispatch.on_worker_statuses(workers)
        dispatch.on_breakers(view.stamped(BreakerState), [worker for _, worker in workers])
        await asyncio.sleep(STATUSES_EVERY_S)


async def _serve(process: Surrounding, work: Sequence[Work]) -> None:
    """Until told to stop; raises what ends the process."""
    stop: asyncio.Task[Any] = asyncio.create_task(process.stopping.wait())
    parts = [asyncio.create_task(each) for each in work]
    await asyncio.wait([stop, *parts], return_when=asyncio.FIRST_COMPLETED)
    for part in parts:
        if part.done():
            part.result()


@contextmanager
def paced(tempo: Tempo) -> Iterator[None]:
    """Idle intervals as long as virtual time allows, small claim checks, no log lines: what a seed costs is CPU."""
    logging = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    changes: dict[str, float] = {
        "services.chassis.blobs.INLINE_BYTES": 256,
        "services.chassis.fleet.FOLLOW_TIMEOUT_S": 3.0,
        "services.chassis.kafka.stream.POLL_S": 2.0,
        "services.aggregator.handlers.TICK_INTERVAL_S": tempo.tick_s,
        "services.aggregator.handlers.SNAPSHOT_CHECK_S": min(0.3, tempo.snapshot_s),
        "services.aggregator.domain.snapshot.EVERY_RECORDS": tempo.snapshot_records,
        "services.orchestrator.gate.LOOK_AGAIN_S": 0.2,
        "services.worker.circuit.TICK_S": 1.0,
        "services.worker.claims.TICK_S": 1.0,
        "services.worker.claims.RENEW_AFTER_S": 2.0,
        "services.worker.consumption.COMMIT_EVERY_S": tempo.commit_interval_s,
        "services.worker.consumption.SATURATED_S": 0.1,
        "services.worker.consumption.IDLE_S": 1.0,
    }
    patches = [patch(name, value) for name, value in changes.items()]
    try:
        for each in patches:
            each.start()
        yield
    finally:
        for each in patches:
            each.stop()
        structlog.configure(**logging)
