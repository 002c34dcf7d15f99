"""The composition root of the autoscaler: all of them look how far behind everything is, and one leads."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from schemas.fleet import FleetMessage, ScalingDecision, ServiceStatus, WorkerStatus
from schemas.topics import CONFIG, EVENTS, FLEET
from services.autoscaler.collector import Collector
from services.autoscaler.domain.watched import NOTHING, Watched
from services.autoscaler.leadership import MEMBERSHIP, Leadership
from services.autoscaler.observer import Observer
from services.autoscaler.scaler import Scaler, Surroundings
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
        fleet_log = await stack.enter_async_context(_log(connection, FLEET, tail=FLEET_TAIL))
        collector = Collector(reader, app.clock)
        view = FleetView(app.clock)
        observer = Observer(app.instance, collector, view, app.clock)
        scaler = Scaler(
            Surroundings(
                app.instance, app.clock, producer, observer,
                events=lambda: _log(connection, EVENTS, tail=0),
                places=app.settings.actuator == "fleet",
            )
        )  # fmt: skip

        def on_revision(watched: Watched) -> None:
            collector.watch(watched)
            scaler.watch(watched)

        config_log = await stack.enter_async_context(_log(connection, CONFIG))
        config = RevisionFollower(config_log, lambda revision: Watched.of(revision.bundle), NOTHING, on_revision)
        await config.start()
        leadership = Leadership(
            lambda listener: AioKafkaConsumer(connection, MEMBERSHIP, listener),
            producer, app.clock, app.instance, scaler.lead,
        )  # fmt: skip
        stack.push_async_callback(app.end_components)
        _expose(app, connection, collector, view, observer)
        app.readiness.add("config", config.why_not_ready)
        app.readiness.add("lag", collector.why_not_ready)
        app.readiness.add("group", leadership.why_not_ready)
        app.component("config", config.run())
        app.component("fleet view", observer.run(fleet_log))
        publisher = FleetPublisher(producer, app.clock, lambda: _statuses(app, config))
        app.readiness.add("fleet", publisher.why_not_ready)
        app.component("fleet", publisher.run())
        app.component("collector", collector.run())
        app.component("leadership", leadership.run())
        await app.stopping.wait()


@asynccontextmanager
async def _log(connection: Connection, topic: str, *, tail: int | None = None) -> AsyncIterator[LogReader]:
    settings = ConsumerSettings(group=None, topics=(topic,))
    reader = LogReader(lambda listener: AioKafkaConsumer(connection, settings, listener), tail=tail)
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


def _statuses(app: App[AutoscalerSettings], config: RevisionFollower[Watched]) -> Sequence[FleetMessage]:
    return (ServiceStatus(instance=app.instance, service=app.service, revision=config.revision),)


def _expose(
    app: App[AutoscalerSettings], connection: Connection, collector: Collector, view: FleetView, observer: Observer
) -> None:
    telemetry = Telemetry(app.metrics, connection)

    async def exposition() -> bytes:
        sample = collector.fresh()
        telemetry.show(sample)
        queues = sample.watched.queues if observer.hears() else ()
        telemetry.show_fleet(queues, view.of(WorkerStatus), view.of(ScalingDecision))
        return app.metrics.exposition()

    app.exposition = exposition
