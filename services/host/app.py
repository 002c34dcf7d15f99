"""The composition root of the host: keeps worker processes running as it is told on the fleet topic."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from schemas.fleet import FleetMessage, HostStatus, ServiceStatus
from schemas.models import Queue
from schemas.topics import CONFIG, FLEET
from services.chassis.app import App, run_service
from services.chassis.config.revisions import QueueFollower
from services.chassis.fleet import FleetPublisher
from services.chassis.kafka.aiokafka_adapter import AioKafkaProducer
from services.chassis.kafka.connection import PATIENCE_S, Connection
from services.chassis.kafka.log_reader import EnduringLog
from services.chassis.kafka.logs import log_of
from services.host.adapters.child_process import ChildLauncher
from services.host.adapters.expositions import merge
from services.host.adapters.machine import Said, capacity, cores
from services.host.handlers import Workers
from services.host.orders import Orders
from services.host.settings import HostSettings

KILL_MARGIN_S = 0.3


def main(config: Path | None = None) -> int:
    """Runs the host to its end; the exit code."""
    return run_service(HostSettings, serve, config)


async def serve(app: App[HostSettings]) -> None:
    """Builds the parts, runs them, and stops the workers when asked to stop.

    SIGUSR1 gives the machine back: it gets nothing new, and ends when it has been told to keep nothing any more.
    """
    settings = app.settings
    launcher = ChildLauncher(
        app.instance, app.plane.home, app.plane.config, to_files=settings.worker_output == "files"
    )
    there = await capacity(Said(settings.cpu, settings.memory, settings.gpus, settings.gpu_memory))
    workers = Workers(
        launcher, app.metrics, settings.model_classes, settings.patience_s,
        cores=max(1, round(cores())), capacity=there,
    )  # fmt: skip
    host = HostStatus(
        instance=app.instance,
        workers={},
        capacity=there,
        model_classes=settings.model_classes,
        labels=settings.labels,
    )
    app.readiness.add("workers", workers.why_not_ready)
    app.exposition = lambda: _all_metrics(app, workers)
    connection = Connection.of(app.kafka, app.instance, PATIENCE_S)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(launcher)
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)

        def on_revision(configured: Sequence[Queue]) -> None:
            workers.want(configured)
            publisher.hurry()

        config = QueueFollower(await _log(stack, connection, CONFIG), on_revision)
        orders = Orders(app.instance, app.clock, workers.obey)
        fleet = await _log(stack, connection, FLEET, tail=0)  # nobody has spoken of this instance yet
        publisher = FleetPublisher(
            producer, app.clock, lambda: (_service(app, config.revision), workers.status(host))
        )

        def leave() -> None:
            workers.leave()
            publisher.hurry()

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, leave)
        app.component("config", config.run())
        app.component("orders", orders.run(fleet))
        app.component("workers", workers.run())
        app.component("departure", _stop_when_left(app, workers))
        app.readiness.add("fleet", publisher.why_not_ready)
        app.component("fleet", publisher.run())
        await app.stopping.wait()
        leave()
        await workers.drain(app.settings.drain_timeout_s - KILL_MARGIN_S)
        await app.end_components()


async def _stop_when_left(app: App[HostSettings], workers: Workers) -> None:
    await workers.left.wait()
    app.stop()


async def _log(stack: AsyncExitStack, connection: Connection, topic: str, *, tail: int | None = None) -> EnduringLog:
    """Whatever becomes of it: the end of a host is that of its workers."""
    log = EnduringLog(lambda: log_of(connection, topic, tail=tail))
    await log.start()
    stack.push_async_callback(log.stop)
    return log


def _service(app: App[HostSettings], revision: int | None) -> FleetMessage:
    return ServiceStatus(instance=app.instance, service=app.service, revision=revision)


async def _all_metrics(app: App[HostSettings], workers: Workers) -> bytes:
    return merge(app.metrics.exposition().decode(), await workers.expositions())
