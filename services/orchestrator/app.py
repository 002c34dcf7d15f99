"""The composition root of the orchestrator: admits requests, and dispatches ready steps."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from faststream.kafka import KafkaBroker

from schemas.fleet import FleetMessage, ServiceStatus, WorkerStatus
from schemas.topics import CONFIG, FLEET, JOINS, ORCHESTRATOR_JOINS_GROUP, REQUESTS
from services.chassis.app import App, run_service
from services.chassis.blobs import FolderBlobStore, Outputs
from services.chassis.config.topic import ConfigFollower
from services.chassis.fleet import FleetPublisher, FleetView
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.stream import Stream
from services.chassis.kafka.types import ConsumerSettings
from services.orchestrator.adapters.counted_producer import CountedProducer
from services.orchestrator.adapters.ingress import build_ingress
from services.orchestrator.handlers import Admission, Dispatch
from services.orchestrator.settings import OrchestratorSettings

FLEET_TAIL = 500
"""Records of the fleet topic to begin with: what still lives repeats itself within seconds."""
STATUSES_S = 2.0
INGRESS_STOP_S = 3.0
READER_FETCH_WAIT_S = 1.0
STREAM_FETCH_WAIT_S = 0.25
"""A fetch ends with the first record that comes, so that a long wait delays nothing, and halves what idling costs."""


def main(config: Path | None = None) -> int:
    """Runs the orchestrator to its end; the exit code."""
    return run_service(OrchestratorSettings, serve, config)


async def serve(app: App[OrchestratorSettings]) -> None:
    """Builds the parts, runs them, and drains them when asked to stop."""
    connection = Connection.of(app.kafka, app.instance)
    async with AsyncExitStack() as stack:
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)
        blobs = FolderBlobStore(app.plane.blob_folder)
        stack.callback(blobs.close)
        outputs = Outputs(blobs)
        fleet_log = await _reader(stack, connection, FLEET, tail=FLEET_TAIL)
        config = ConfigFollower(await _reader(stack, connection, CONFIG))
        await config.start()
        stack.push_async_callback(app.end_components)  # after the streams have drained, before clients are closed
        app.readiness.add("config", config.why_not_ready)
        app.component("config", config.run())

        dispatch = Dispatch(lambda: config.live, outputs, app.clock, app.metrics)
        stream = _dispatch_stream(connection, CountedProducer(producer, dispatch.outstanding), dispatch)
        stack.push_async_callback(stream.stop)
        app.readiness.add("dispatch", lambda: None if stream.progressing else "not polling the joins topic")
        app.component("dispatch", stream.run())

        admission = Admission(lambda: config.live, producer, outputs, app.clock, app.metrics)
        ingress = Ingress(connection, config, admission)
        stack.push_async_callback(ingress.stop)
        app.readiness.add("admission", ingress.why_not_ready)
        app.component("admission", ingress.run())

        view = FleetView(app.clock)
        app.component("fleet view", view.run(fleet_log))
        app.component("worker statuses", _report(view, dispatch))
        app.component("fleet", FleetPublisher(producer, app.clock, partial(_statuses, app, config)).run())
        await app.stopping.wait()


class Ingress:
    """Admission's consumer. It is built anew when a configuration brings other ingress topics."""

    def __init__(self, connection: Connection, config: ConfigFollower, admission: Admission) -> None:
        self._connection = connection
        self._config = config
        self._admission = admission
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._broker: KafkaBroker | None = None
        self._topics: tuple[str, ...] = ()

    def why_not_ready(self) -> str | None:
        """For readiness."""
        return None if self._broker is not None else "not consuming requests"

    async def run(self) -> None:
        """Consumes once there is a configuration. Raises what admission raised: nothing may be committed past it."""
        while not self._failed.done():
            wanted = (REQUESTS, *self._config.live.ingress_topics)
            if self._config.revision is not None and wanted != self._topics:
                await self.stop()
                self._broker = build_ingress(self._connection, wanted, self._admission.on_batch, self._fail)
                self._topics = wanted
                await self._broker.start()
            await asyncio.wait([self._failed], timeout=1.0)
        await self._failed

    async def stop(self) -> None:
        """Leaves the group; a batch in hand that is not committed comes again."""
        if self._broker is not None:
            async with asyncio.timeout(INGRESS_STOP_S):
                await self._broker.stop()
        self._broker = None

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


async def _reader(stack: AsyncExitStack, connection: Connection, topic: str, *, tail: int | None = None) -> LogReader:
    settings = ConsumerSettings(group=None, topics=(topic,), fetch_max_wait_s=READER_FETCH_WAIT_S)
    reader = LogReader(lambda listener: AioKafkaConsumer(connection, settings, listener), tail=tail)
    await reader.start()
    stack.push_async_callback(reader.stop)
    return reader


def _dispatch_stream(connection: Connection, producer: CountedProducer, dispatch: Dispatch) -> Stream:
    settings = ConsumerSettings(group=ORCHESTRATOR_JOINS_GROUP, topics=(JOINS,), fetch_max_wait_s=STREAM_FETCH_WAIT_S)
    return Stream(lambda listener: AioKafkaConsumer(connection, settings, listener), producer, dispatch)


async def _report(view: FleetView, dispatch: Dispatch) -> None:
    """Tells dispatch how far the workers are."""
    while True:
        dispatch.on_worker_statuses(view.of(WorkerStatus))
        await asyncio.sleep(STATUSES_S)


def _statuses(app: App[OrchestratorSettings], config: ConfigFollower) -> Sequence[FleetMessage]:
    return (ServiceStatus(instance=app.instance, service=app.service, revision=config.revision),)
