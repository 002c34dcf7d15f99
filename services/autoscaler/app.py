"""The composition root of the autoscaler: so far its collector, which tells how far behind everything is."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from schemas.fleet import FleetMessage, HostStatus, ServiceStatus, WorkerStatus
from schemas.topics import CONFIG, FLEET
from services.autoscaler.collector import Collector
from services.autoscaler.domain.watched import NOTHING, Watched
from services.autoscaler.settings import AutoscalerSettings
from services.autoscaler.telemetry import Telemetry
from services.chassis.app import App, run_service
from services.chassis.config.revisions import RevisionFollower
from services.chassis.fleet import FleetPublisher, FleetView
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import PATIENCE_S, Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.offsets import KafkaOffsetReader
from services.chassis.kafka.types import ConsumerSettings

FLEET_TAIL = 500
"""Records of the fleet topic to begin with: what still lives repeats itself within seconds."""


def main(config: Path | None = None) -> int:
    """Runs the autoscaler to its end; the exit code."""
    return run_service(AutoscalerSettings, serve, config)


async def serve(app: App[AutoscalerSettings]) -> None:
    """Builds the parts, and runs them until asked to stop."""
    connection = Connection.of(app.kafka, app.instance, PATIENCE_S)
    async with AsyncExitStack() as stack:
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)
        reader = await stack.enter_async_context(KafkaOffsetReader(connection))
        fleet_log = await _log(stack, connection, FLEET, tail=FLEET_TAIL)
        collector = Collector(reader, app.clock)
        config = RevisionFollower(
            await _log(stack, connection, CONFIG),
            lambda revision: Watched.of(revision.bundle),
            NOTHING,
            collector.watch,
        )
        await config.start()
        stack.push_async_callback(app.end_components)
        view = FleetView(app.clock)
        _expose(app, connection, collector, view)
        app.readiness.add("config", config.why_not_ready)
        app.readiness.add("lag", collector.why_not_ready)
        app.component("config", config.run())
        app.component("fleet view", view.run(fleet_log))
        publisher = FleetPublisher(producer, app.clock, lambda: _statuses(app, config))
        app.readiness.add("fleet", publisher.why_not_ready)
        app.component("fleet", publisher.run())
        app.component("collector", collector.run())
        await app.stopping.wait()


async def _log(stack: AsyncExitStack, connection: Connection, topic: str, *, tail: int | None = None) -> LogReader:
    settings = ConsumerSettings(group=None, topics=(topic,))
    reader = LogReader(lambda listener: AioKafkaConsumer(connection, settings, listener), tail=tail)
    await reader.start()
    stack.push_async_callback(reader.stop)
    return reader


def _statuses(app: App[AutoscalerSettings], config: RevisionFollower[Watched]) -> Sequence[FleetMessage]:
    return (ServiceStatus(instance=app.instance, service=app.service, revision=config.revision),)


def _expose(app: App[AutoscalerSettings], connection: Connection, collector: Collector, view: FleetView) -> None:
    telemetry = Telemetry(app.metrics, connection)

    async def exposition() -> bytes:
        sample = collector.fresh()
        telemetry.show(sample)
        # Who hears itself hears the others: only then is a worker that nobody speaks of one that is not there.
        hears = any(status.instance == app.instance for status in view.of(ServiceStatus))
        queues = sample.watched.queues if hears else ()
        telemetry.show_fleet(queues, view.of(WorkerStatus), view.of(HostStatus))
        return app.metrics.exposition()

    app.exposition = exposition
