"""The composition root of the aggregator: folds the events topic, and acts on it."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from schemas.fleet import FleetMessage, OpenRuns, ServiceStatus
from schemas.metrics import OPEN_RUNS
from schemas.topics import AGGREGATOR_GROUP, EVENTS
from services.aggregator.actions import Actions
from services.aggregator.adapters.kafka_requests import KafkaRequestReader
from services.aggregator.adapters.redis_stops import RedisRunStopper
from services.aggregator.handlers import Join
from services.aggregator.settings import AggregatorSettings
from services.chassis.app import App, run_service
from services.chassis.blobs import FolderBlobStore, Outputs
from services.chassis.fleet import FleetPublisher
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.stream import Stream
from services.chassis.kafka.types import ConsumerSettings, TopicPartition
from services.chassis.redis import connect

LOOK_S = 0.05


def main(config: Path | None = None) -> int:
    """Runs the aggregator to its end; the exit code."""
    return run_service(AggregatorSettings, serve, config)


async def serve(app: App[AggregatorSettings]) -> None:
    """Builds the parts, runs them, and drains them when asked to stop."""
    connection = Connection.of(app.kafka, app.instance)
    async with AsyncExitStack() as stack:
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)
        requests = KafkaRequestReader(connection)
        stack.push_async_callback(requests.stop)
        redis = connect(app.redis)
        stack.push_async_callback(redis.aclose)
        blobs = FolderBlobStore(app.plane.blob_folder)
        stack.callback(blobs.close)
        stack.push_async_callback(app.end_components)  # after the stream has drained, before clients are closed
        stopper = RedisRunStopper(redis)
        actions = Actions(
            clock=app.clock,
            producer=producer,
            outputs=Outputs(blobs),
            requests=requests,
            stopper=stopper,
            metrics=app.metrics,
        )
        stack.push_async_callback(actions.stop)
        join = Join(actions, window_ms=app.settings.idempotency_window_ms, clock=app.clock, producer=producer)
        stream = _stream(connection, producer, join)
        stack.push_async_callback(stream.stop)
        _observe_open_runs(app, join)
        app.readiness.add("join", lambda: None if stream.progressing else "not polling the events topic")
        app.component("join", stream.run())
        app.component("ticks", join.tick())
        app.component("stops", stopper.run())
        app.component("blob sweep", blobs.sweep_forever())
        publisher = FleetPublisher(producer, app.clock, lambda: _statuses(app, join))
        app.component("fleet", publisher.run())
        app.component("open runs", _announce_at_once(join, publisher))
        await app.stopping.wait()


def _stream(connection: Connection, producer: AioKafkaProducer, join: Join) -> Stream:
    async def on_assigned(partitions: frozenset[TopicPartition]) -> None:
        await join.on_assigned(partitions, stream.consumer)

    settings = ConsumerSettings(group=AGGREGATOR_GROUP, topics=(EVENTS,))
    stream = Stream(
        lambda listener: AioKafkaConsumer(connection, settings, listener),
        producer,
        join,
        on_assigned=on_assigned,
        on_revoked=join.on_revoked,
    )
    return stream


async def _announce_at_once(join: Join, publisher: FleetPublisher) -> None:
    """Says so when a partition has come or has caught up: until then no request is admitted."""
    announced: frozenset[int] = frozenset()
    while True:
        await asyncio.sleep(LOOK_S)
        present = frozenset(join.open_runs())
        if present - announced:
            publisher.hurry()
        announced = present


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
