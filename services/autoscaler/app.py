"""The composition root of the autoscaler: all of them look how far behind everything is, and one leads."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from schemas.fleet import FleetMessage, ScalingDecision, ServiceStatus, WorkerStatus
from schemas.topics import CONFIG, EVENTS, FLEET
from services.autoscaler.collector import Collector
from services.autoscaler.domain.watched import NOTHING, Watched
from services.autoscaler.keda.board import Board
from services.autoscaler.leadership import MEMBERSHIP, Leadership
from services.autoscaler.machines import Machines, load_hook
from services.autoscaler.memory import Memory
from services.autoscaler.observer import Observer
from services.autoscaler.scaler import Audience, Scaler, Surroundings
from services.autoscaler.settings import AutoscalerSettings
from services.autoscaler.telemetry import Telemetry
from services.chassis.app import App, run_service
from services.chassis.config.revisions import RevisionFollower
from services.chassis.fleet import FleetPublisher, FleetView
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import PATIENCE_S, Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.logs import log_of
from services.chassis.kafka.offsets import KafkaOffsetReader
from services.chassis.settings import SettingsError

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
        observer = Observer(app.instance, collector, FleetView(app.clock), app.clock)
        board, machines = Board(), _machines(app)
        audience: list[Audience] = [board, machines] if machines else [board]
        scaler = Scaler(
            Surroundings(
                app.instance, app.clock, producer, observer,
                events=lambda tail: _log(connection, EVENTS, tail=tail),
                memory=Memory(app.plane.home / "autoscaler.json"),
                places=app.settings.actuator == "fleet",
            ),
            audience,
        )  # fmt: skip

        def on_revision(watched: Watched) -> None:
            collector.watch(watched)
            scaler.watch(watched)
            board.watch(queue.label for queue in watched.queues)

        config_log = await stack.enter_async_context(_log(connection, CONFIG))
        config = RevisionFollower(config_log, lambda revision: Watched.of(revision.bundle), NOTHING, on_revision)
        await config.start()
        leadership = Leadership(
            lambda listener: AioKafkaConsumer(connection, MEMBERSHIP, listener),
            producer, app.clock, app.instance, scaler.lead,
        )  # fmt: skip
        await _answer_keda(app, stack, board)
        stack.push_async_callback(app.end_components)
        _expose(app, Telemetry(app.metrics, connection), collector, observer, scaler)
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
        if machines:
            app.component("machines", machines.run())
        await app.stopping.wait()


@asynccontextmanager
async def _log(connection: Connection, topic: str, *, tail: int | None = None) -> AsyncIterator[LogReader]:
    reader = log_of(connection, topic, tail=tail)
    try:
        await reader.start()
        yield reader
    finally:
        await reader.stop()


async def _answer_keda(app: App[AutoscalerSettings], stack: AsyncExitStack, board: Board) -> None:
    port, setting = app.settings.keda_port, "HEADWAY_AUTOSCALER_KEDA_PORT"
    if not port:
        return
    try:
        from services.autoscaler.keda.server import KedaServer  # its libraries are an extra
    except ImportError as error:
        raise SettingsError(f"{setting}: to answer KEDA, install headway[kubernetes] ({error})") from error
    await stack.enter_async_context(KedaServer(board, app.settings.metrics_host, port, setting))


def _machines(app: App[AutoscalerSettings]) -> Machines | None:
    path = app.settings.scale_machines
    return Machines(load_hook(path, (app.plane.config or Path()) / "functions")) if path else None


def _statuses(app: App[AutoscalerSettings], config: RevisionFollower[Watched]) -> Sequence[FleetMessage]:
    return (ServiceStatus(instance=app.instance, service=app.service, revision=config.revision),)


def _expose(
    app: App[AutoscalerSettings], telemetry: Telemetry, collector: Collector, observer: Observer, scaler: Scaler
) -> None:
    async def exposition() -> bytes:
        sample = collector.fresh()
        telemetry.show(sample)
        queues = sample.watched.queues if observer.hears() else ()
        telemetry.show_fleet(queues, observer.view.of(WorkerStatus), observer.view.of(ScalingDecision))
        telemetry.show_foresight(sample.watched.queues, scaler.control)
        return app.metrics.exposition()

    app.exposition = exposition
