"""The composition root of the orchestrator: admits requests, and dispatches ready steps."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from schemas.fleet import BreakerState, FleetMessage, OpenRuns, ScalingDecision, ServiceStatus, WorkerStatus
from schemas.topics import (
    CONFIG,
    EVENTS,
    FLEET,
    JOINS,
    ORCHESTRATOR_JOINS_GROUP,
    ORCHESTRATOR_REQUESTS_GROUP,
    REQUESTS,
)
from services.chassis.app import App, run_service
from services.chassis.blobs import FolderBlobStore, Outputs
from services.chassis.config.topic import ConfigFollower
from services.chassis.fleet import FleetPublisher, FleetView, in_force
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import PATIENCE_S, Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.logs import log_of
from services.chassis.kafka.stream import BatchHandler, Stream
from services.chassis.kafka.types import ConsumerSettings, Producer
from services.chassis.tracing import tracing
from services.orchestrator.adapters.counted_producer import CountedProducer
from services.orchestrator.adapters.ingress_stream import IngressStream
from services.orchestrator.domain.door import Announcement, Door
from services.orchestrator.gate import Gate
from services.orchestrator.handlers import Admission, Dispatch
from services.orchestrator.promises import count_from_zero, exposing_promises
from services.orchestrator.settings import OrchestratorSettings

FLEET_TAIL = 500
"""Records of the fleet topic to begin with: what still lives repeats itself within seconds."""
STATUSES_S = 0.25
"""How often they are looked at: an open breaker should be known soon."""


def main(config: Path | None = None) -> int:
    """Runs the orchestrator to its end; the exit code."""
    return run_service(OrchestratorSettings, serve, config)


async def serve(app: App[OrchestratorSettings]) -> None:
    """Builds the parts, runs them, and drains them when asked to stop."""
    connection = Connection.of(app.kafka, app.instance, PATIENCE_S)
    async with AsyncExitStack() as stack:
        tracer = stack.enter_context(tracing(app.service, app.instance))
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)
        blobs = FolderBlobStore(app.plane.blob_folder)
        stack.callback(blobs.close)
        outputs = Outputs(blobs)
        fleet_log = await _reader(stack, connection, FLEET, tail=FLEET_TAIL)
        config = ConfigFollower(await _reader(stack, connection, CONFIG), partial(count_from_zero, app.metrics))
        await config.start()
        stack.push_async_callback(app.end_components)  # after the streams have drained, before clients are closed
        app.readiness.add("config", config.why_not_ready)
        app.component("config", config.run())
        app.exposition = exposing_promises(app.metrics, lambda: config.live)

        dispatch = Dispatch(lambda: config.live, outputs, app.clock, app.metrics)
        counted = CountedProducer(producer, dispatch.outstanding)
        stream = _stream(connection, ORCHESTRATOR_JOINS_GROUP, (JOINS,), counted, dispatch)
        stack.push_async_callback(stream.stop)
        app.readiness.add("dispatch", lambda: None if stream.progressing else "not polling the joins topic")
        app.component("dispatch", stream.run())

        view = FleetView(app.clock)
        app.component("fleet view", view.run(fleet_log))

        door = Door(app.settings.max_open_runs, await producer.partitions(EVENTS))
        gate = Gate(partial(_announced, view), door, app.clock, app.metrics)
        admission = Admission(lambda: config.live, outputs, app.clock, app.metrics, gate, tracer=tracer)

        def build(topics: tuple[str, ...]) -> Stream:
            admission.expect(topics)
            return _stream(connection, ORCHESTRATOR_REQUESTS_GROUP, topics, producer, admission)

        ingress = IngressStream(lambda: (REQUESTS, *config.live.ingress_topics), build)
        stack.push_async_callback(ingress.stop)
        app.readiness.add("admission", lambda: None if ingress.progressing else "not polling the ingress topics")
        app.component("admission", _admit(config, ingress))

        app.component("worker statuses", _report(view, dispatch))
        publisher = FleetPublisher(producer, app.clock, partial(_statuses, app, config))
        app.readiness.add("fleet", publisher.why_not_ready)
        app.component("fleet", publisher.run())
        await app.stopping.wait()


async def _admit(config: ConfigFollower, ingress: IngressStream) -> None:
    """Without a configuration every request would be refused for its pipeline: they wait for one."""
    await config.first()
    await ingress.run()


async def _reader(stack: AsyncExitStack, connection: Connection, topic: str, *, tail: int | None = None) -> LogReader:
    reader = log_of(connection, topic, tail=tail)
    await reader.start()
    stack.push_async_callback(reader.stop)
    return reader


def _stream(
    connection: Connection, group: str, topics: tuple[str, ...], producer: Producer, handler: BatchHandler
) -> Stream:
    settings = ConsumerSettings(group=group, topics=topics)
    return Stream(lambda listener: AioKafkaConsumer(connection, settings, listener), producer, handler)


async def _report(view: FleetView, dispatch: Dispatch) -> None:
    """Tells dispatch how far the workers are, and how well."""
    while True:
        workers = view.stamped(WorkerStatus)
        dispatch.on_worker_statuses(workers, in_force(view.of(ScalingDecision)))
        dispatch.on_breakers(view.stamped(BreakerState), [worker for _, worker in workers])
        await asyncio.sleep(STATUSES_S)


def _announced(view: FleetView) -> Sequence[Announcement]:
    return [Announcement(at, said.by_partition) for at, said in view.stamped(OpenRuns)]


def _statuses(app: App[OrchestratorSettings], config: ConfigFollower) -> Sequence[FleetMessage]:
    return (ServiceStatus(instance=app.instance, service=app.service, revision=config.revision),)
