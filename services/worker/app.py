"""The composition root of a worker: its queues' engines, and the loops that feed them."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from schemas.config import Bundle
from schemas.models import Queue, queues
from schemas.pipelines import PipelineSpec
from schemas.topics import CONFIG
from services.chassis.app import App, run_service
from services.chassis.blobs import FolderBlobStore, Outputs
from services.chassis.config.revisions import RevisionFollower
from services.chassis.fleet import FleetPublisher
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import PATIENCE_S, Connection
from services.chassis.kafka.logs import log_of
from services.chassis.kafka.types import ConsumerSettings, RebalanceListener
from services.chassis.process_age import process_age_s
from services.chassis.redis import connect
from services.chassis.settings import SettingsError, secret
from services.chassis.tracing import tracing
from services.worker.adapters.redis_claims import RedisClaimStore
from services.worker.adapters.redis_dead_runs import RedisDeadRuns
from services.worker.adapters.redis_text import RedisTextChannel
from services.worker.claims import Claims
from services.worker.domain.engine import Engine
from services.worker.ended_runs import EndedRuns
from services.worker.engines.registry import build_engine
from services.worker.handlers import Surroundings
from services.worker.member import Member, Name
from services.worker.rest import Rest
from services.worker.settings import WorkerSettings
from services.worker.telemetry import count_from_zero
from services.worker.text_stream import TextStream

STATUS_EVERY_S = 2.0
LEAVE_S = 1.0
"""Of the time to drain: for the last commits, and to leave the groups."""


class Configured(NamedTuple):
    """What a worker uses of a revision."""

    queues: Sequence[Queue] = ()
    pipelines: Sequence[PipelineSpec] = ()

    @classmethod
    def of(cls, bundle: Bundle) -> "Configured":
        """All of its queues, and who may send to them."""
        return cls(list(queues(bundle.model_classes)), bundle.pipelines)


def main(labels: Sequence[str], config: Path | None = None) -> int:
    """Runs one worker for these queues (`class`, or `class.backend`) to its end; the exit code."""
    return run_service(WorkerSettings, partial(serve, labels=labels), config)


async def serve(app: App[WorkerSettings], labels: Sequence[str]) -> None:
    """Builds the parts, runs them, and drains when asked to stop."""
    rest = _rest_by_signals(asleep=app.settings.asleep)  # at once: its host may send them once the side door answers
    connection = Connection.of(app.kafka, app.instance, PATIENCE_S)
    async with AsyncExitStack() as stack:
        tracer = stack.enter_context(tracing(app.service, app.instance))
        producer = AioKafkaProducer(connection)
        await producer.start()
        stack.push_async_callback(producer.stop)
        app.component("producer", _alive(producer))
        configured = await _configuration(app, connection)
        if configured is None:
            return
        wanted = named(configured.queues, labels)

        redis = connect(app.redis)
        stack.push_async_callback(redis.aclose)
        blobs = FolderBlobStore(app.plane.blob_folder)
        stack.callback(blobs.close)
        claims = Claims(RedisClaimStore(redis, app.instance))
        text = TextStream(RedisTextChannel(redis))
        around = Surroundings(
            producer, app.clock, Outputs(blobs), claims, rest=rest, tracer=tracer, text=text, age_s=process_age_s()
        )
        ended = EndedRuns()
        members: list[Member] = []
        name = Name(app.instance, app.settings.host)
        publisher = FleetPublisher(
            producer, app.clock, lambda: [news for member in members for news in member.news(name)], STATUS_EVERY_S
        )

        def consumer(settings: ConsumerSettings, listener: RebalanceListener) -> AioKafkaConsumer:
            return AioKafkaConsumer(connection, settings, listener)

        for queue in wanted:
            count_from_zero(app.metrics, queue, configured.pipelines)
            engine = _engine(app, queue)
            stack.push_async_callback(engine.stop)
            members.append(
                Member(
                    queue, engine, around, ended,
                    consumers=consumer, metrics=app.metrics, on_change=publisher.hurry,
                )
            )  # fmt: skip
        stack.push_async_callback(_give_back, claims, producer)
        stack.push_async_callback(app.end_components)  # before their clients are closed
        await publisher.publish()  # from its acknowledgement the clock learns the time
        app.readiness.add("fleet", publisher.why_not_ready)
        app.component("fleet", publisher.run())
        app.component("claims", claims.keep(ended.add))
        app.component("ended-runs", ended.follow(RedisDeadRuns(redis)))
        app.component("text", text.run())
        for member in members:
            app.readiness.add(member.queue.label, member.why_not_ready)
            app.component(f"{member.queue.label}-engine", member.watch())
            app.component(f"{member.queue.label}-breaker", member.guard())
            app.component(f"{member.queue.label}-slots", member.limit())
            app.component(f"{member.queue.label}-account", member.account())
            app.component(member.queue.label, member.run())
        await app.stopping.wait()
        time_left_s = max(0.1, app.settings.drain_timeout_s - LEAVE_S)
        await asyncio.gather(*(member.drain(time_left_s) for member in members), publisher.publish())


def named(queues: Sequence[Queue], labels: Sequence[str]) -> list[Queue]:
    """Those with these labels, fast classes first. Raises SettingsError for one that is not configured."""
    known = {queue.label: queue for queue in queues}
    unknown = [label for label in labels if label not in known]
    if unknown or not labels:
        names = ", ".join(sorted(known)) or "none"
        raise SettingsError(f"no model class {', '.join(unknown) or 'given'}; configured are: {names}")
    return sorted((known[label] for label in dict.fromkeys(labels)), key=lambda queue: queue.rank != "fast")


def _rest_by_signals(*, asleep: bool) -> Rest:
    rest = Rest(wanted=asleep)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, rest.begin)
    loop.add_signal_handler(signal.SIGUSR2, rest.end)
    return rest


def _engine(app: App[WorkerSettings], queue: Queue) -> Engine:
    return build_engine(
        queue.engine,
        slots=queue.slots,
        home=app.plane.home,
        functions_folder=(app.plane.config or Path()) / "functions",
        secret=secret,
    )


async def _configuration(app: App[WorkerSettings], connection: Connection) -> Configured | None:
    """The configuration in force, awaited; None when told to stop first.

    Later revisions are not followed: a host replaces the workers whose class has changed.
    """
    reader = log_of(connection, CONFIG)
    await reader.start()
    follower = RevisionFollower(reader, lambda revision: Configured.of(revision.bundle), Configured())
    waits = [asyncio.create_task(work) for work in (follower.first(), follower.run(), app.stopping.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if waits[1].done():
            waits[1].result()
        return follower.live if follower.revision is not None else None
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await reader.stop()


async def _give_back(claims: Claims, producer: AioKafkaProducer) -> None:
    """Also when a component has failed: nobody shall wait for its tasks' leases to end, and count that as a death.

    Unless the broker refused a record: that may be the doing of any of them.
    """
    if not producer.dead.done():
        await claims.release()


async def _alive(producer: AioKafkaProducer) -> None:
    """Raises ProducerDeadError when the producer is: nothing this process does can be reported any more."""
    await asyncio.shield(producer.dead)
