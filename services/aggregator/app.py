"""The composition root of the aggregator: folds the events topic, and acts on it."""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from schemas.config import Revision
from schemas.fleet import FleetMessage, OpenRuns, ServiceStatus
from schemas.metrics import OPEN_RUNS
from schemas.topics import AGGREGATOR_GROUP, CONFIG, EVENTS
from services.aggregator.actions import Actions
from services.aggregator.adapters.kafka_requests import KafkaRequestReader
from services.aggregator.adapters.redis_stops import RedisRunStopper
from services.aggregator.handlers import Join
from services.aggregator.settings import AggregatorSettings
from services.aggregator.snapshots import Snapshots
from services.aggregator.telemetry import count_from_zero
from services.chassis.app import App, run_service
from services.chassis.blobs import FolderBlobStore, Outputs
from services.chassis.config.revisions import RevisionFollower
from services.chassis.fleet import FleetPublisher
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import PATIENCE_S, Connection
from services.chassis.kafka.logs import log_of
from services.chassis.kafka.stream import Stream
from services.chassis.kafka.types import ConsumerSettings
from services.chassis.redis import connect
from services.chassis.tracing import tracing


def main(config: Path | None = None) -> int:
    """Runs the aggregator to its end; the exit code."""
    return run_service(AggregatorSettings, serve, config)


async def serve(app: App[AggregatorSettings]) -> None:
    """Builds the parts, runs them, and drains them when asked to stop."""
    connection = Connection.of(app.kafka, app.instance, PATIENCE_S)
    async with AsyncExitStack() as stack:
        tracer = stack.enter_context(tracing(app.service, app.instance))
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)
        requests = KafkaRequestReader(connection)
        redis = connect(app.redis)
        stack.push_async_callback(redis.aclose)
        blobs = FolderBlobStore(app.plane.blob_folder)
        stack.callback(blobs.close)
        stack.push_async_callback(app.end_components)  # after the stream has drained, before clients are closed
        stopper = RedisRunStopper(redis, app.clock)
        actions = Actions(
            clock=app.clock,
            producer=producer,
            outputs=Outputs(blobs),
            requests=requests,
            stopper=stopper,
            metrics=app.metrics,
            tracer=tracer,
        )
        stack.push_async_callback(actions.stop)
        window_ms = app.settings.idempotency_window_ms
        snapshots = Snapshots(blobs, window_ms, time.monotonic, app.settings.snapshot_interval_s)
        join = Join(actions, window_ms=window_ms, clock=app.clock, producer=producer, snapshots=snapshots)
        settings = ConsumerSettings(group=AGGREGATOR_GROUP, topics=(EVENTS,))
        stream = Stream(lambda listener: AioKafkaConsumer(connection, settings, listener), producer, join, state=join)
        stack.push_async_callback(stream.stop)
        _observe_open_runs(app, join)
        app.readiness.add("join", lambda: None if stream.progressing else "not polling the events topic")
        app.component("join", stream.run())
        app.component("ticks", join.tick())
        app.component("snapshots", join.keep_snapshots())
        app.component("stops", stopper.run())
        app.component("blob sweep", blobs.sweep_forever())
        app.component("pipelines", _expect_pipelines(app, connection))
        publisher = FleetPublisher(producer, app.clock, lambda: _statuses(app, join))
        app.readiness.add("fleet", publisher.why_not_ready)
        app.component("fleet", publisher.run())
        app.component("open runs", _announce_at_once(join, publisher))
        await app.stopping.wait()


async def _expect_pipelines(app: App[AggregatorSettings], connection: Connection) -> None:
    """For the metrics alone: the join takes each run's graph from the log, and waits for no configuration."""
    reader = log_of(connection, CONFIG)
    await reader.start()
    try:
        await RevisionFollower(reader, _pipelines, frozenset[str](), partial(count_from_zero, app.metrics)).run()
    finally:
        await reader.stop()


def _pipelines(revision: Revision) -> frozenset[str]:
    return frozenset(pipeline.name for pipeline in revision.bundle.pipelines)


async def _announce_at_once(join: Join, publisher: FleetPublisher) -> None:
    """Admission waits until it has heard of every partition."""
    while True:
        await join.resumed.wait()
        join.resumed.clear()
        publisher.hurry()


def _statuses(app: App[AggregatorSettings], join: Join) -> Sequence[FleetMessage]:
    return (
        ServiceStatus(instance=app.instance, service=app.service, revision=None),
        OpenRuns(instance=app.instance, by_partition=join.open_runs()),
    )


def _observe_open_runs(app: App[AggregatorSettings], join: Join) -> None:
    """Read when the metrics are: nothing is counted on the hot path."""
    gauge = app.metrics.gauge(OPEN_RUNS)

    async def exposition() -> bytes:
        gauge.clear()
        for partition, count in join.open_runs().items():
            gauge.labels(str(partition)).set(count)
        return app.metrics.exposition()

    app.exposition = exposition
