"""The composition root of the host: keeps worker processes running as the configuration in force says."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from schemas.fleet import FleetMessage
from schemas.models import Queue
from schemas.topics import CONFIG
from services.chassis.app import App, run_service
from services.chassis.config.revisions import QueueFollower
from services.chassis.fleet import FleetPublisher
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import PATIENCE_S, Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.types import ConsumerSettings
from services.host.adapters.child_process import ChildLauncher
from services.host.adapters.expositions import merge
from services.host.handlers import Workers
from services.host.settings import HostSettings

KILL_MARGIN_S = 0.3


def main(config: Path | None = None) -> int:
    """Runs the host to its end; the exit code."""
    return run_service(HostSettings, serve, config)


async def serve(app: App[HostSettings]) -> None:
    """Builds the parts, runs them, and stops the workers when asked to stop."""
    to_files = app.settings.worker_output == "files"
    launcher = ChildLauncher(app.instance, app.plane.home, app.plane.config, to_files=to_files)
    workers = Workers(launcher, app.metrics, app.settings.model_classes)
    app.readiness.add("workers", workers.why_not_ready)
    app.exposition = lambda: _all_metrics(app, workers)
    connection = Connection.of(app.kafka, app.instance, PATIENCE_S)
    async with AsyncExitStack() as stack:
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)

        def on_revision(configured: Sequence[Queue]) -> None:
            workers.want(configured)
            publisher.hurry()

        config = QueueFollower(await _config_log(stack, connection), on_revision)
        publisher = FleetPublisher(producer, app.clock, lambda: _statuses(app, config, workers))
        app.component("config", config.run())
        app.component("workers", workers.run())
        app.readiness.add("fleet", publisher.why_not_ready)
        app.component("fleet", publisher.run())
        await app.stopping.wait()
        await workers.drain(app.settings.drain_timeout_s - KILL_MARGIN_S)
        await app.end_components()


async def _config_log(stack: AsyncExitStack, connection: Connection) -> LogReader:
    settings = ConsumerSettings(group=None, topics=(CONFIG,))
    reader = LogReader(lambda listener: AioKafkaConsumer(connection, settings, listener))
    await reader.start()
    stack.push_async_callback(reader.stop)
    return reader


def _statuses(app: App[HostSettings], config: QueueFollower, workers: Workers) -> Sequence[FleetMessage]:
    return workers.statuses(app.instance, config.revision)


async def _all_metrics(app: App[HostSettings], workers: Workers) -> bytes:
    return merge(app.metrics.exposition().decode(), await workers.expositions())
