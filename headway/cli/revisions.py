"""Making a revision the one in force, without harm to the work that is queued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headway.cli.bundles import moved_partitions
from headway.cli.exits import CliError, Exit
from headway.cli.fleet import follow_fleet
from headway.cli.logs import open_logs
from headway.cli.output import say
from schemas.config import Bundle
from schemas.fleet import ServiceStatus
from schemas.models import Queue
from schemas.topics import CONFIG, ORCHESTRATOR_REQUESTS_GROUP, all_topics
from services.chassis.config.topic import ConfigHistory
from services.chassis.fleet import FleetView
from services.chassis.kafka.admin import Admin, Lag
from services.chassis.kafka.aiokafka_adapter import AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.logs import log_of
from services.chassis.settings import KafkaSettings

TAKEN_TIMEOUT_S = 30.0
SILENCE_S = 6.0
FOLLOWERS = ("orchestrator", "host")
"""The services that run by the configuration, and say which one."""


@asynccontextmanager
async def open_history(broker: Connection) -> AsyncIterator[ConfigHistory]:
    """Publishes and rolls back. The config topic must exist."""
    reader = log_of(broker, CONFIG)
    producer = AioKafkaProducer(broker)
    try:
        await reader.start()
        await producer.start()
        yield ConfigHistory(reader, producer)
    finally:
        await reader.stop()
        await producer.stop()


async def prepare(broker: Connection, old: Bundle, new: Bundle) -> None:
    """Creates what `new` needs. A CliError if what would change lanes, or would no longer be read, holds work."""
    async with Admin(broker) as admin:
        for topic in sorted(_ingress_topics(old) - _ingress_topics(new)):
            await _require_read(admin, topic)
        for queue, partitions in moved_partitions(old.model_classes, new.model_classes):
            await _require_drained(admin, queue, partitions)
        topics = all_topics(new.model_classes, new.tenants)
        settings = KafkaSettings.load()
        for change in await admin.reconcile(topics, settings.replication_factor, settings.partitions):
            say(f"topic {change.topic}: {change.action} {change.detail}")


async def _require_drained(admin: Admin, queue: Queue, partitions: list[int]) -> None:
    lags = await admin.lag(queue.group, [queue.topic])
    busy = sorted(tp.partition for tp, lag in lags.items() if tp.partition in partitions and _holds_work(lag))
    if busy:
        numbers = ", ".join(map(str, busy))
        raise CliError(
            f"{queue.label}: partition {numbers} of {queue.topic} would leave its lane but holds work: "
            "keep it in its lane, or wait until `headway lag` shows 0",
            Exit.PROBLEMS,
        )


def _ingress_topics(bundle: Bundle) -> set[str]:
    return {topic for tenant in bundle.tenants.values() for topic in tenant.ingress_topics}


async def _require_read(admin: Admin, topic: str) -> None:
    lags = await admin.lag(ORCHESTRATOR_REQUESTS_GROUP, [topic])
    if any(_holds_work(lag) for lag in lags.values()):
        raise CliError(
            f"{topic} would no longer be read but holds requests: keep its tenant until they have been admitted",
            Exit.PROBLEMS,
        )


def _holds_work(lag: Lag) -> bool:
    """Without a commit nothing was ever taken from it: whatever it has is work."""
    return lag.end > (lag.committed or 0)


async def until_taken(broker: Connection, revision: int) -> None:
    """Waits until every live service runs by `revision`; a CliError names those that do not after 30 s."""
    late: list[str] | None = None
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(TAKEN_TIMEOUT_S) as limit, open_logs(broker) as logs:
            limit.reschedule(began + SILENCE_S)
            async for view in follow_fleet(logs):
                limit.reschedule(began + TAKEN_TIMEOUT_S)
                late = _late(view, revision)
                if late == []:
                    return
    except TimeoutError:
        if late is None:
            say("no service is up: it takes effect when one starts")
            return
    raise CliError(f"not taken within {TAKEN_TIMEOUT_S:.0f} s by {', '.join(late or ())}", Exit.TIMED_OUT)


def _late(view: FleetView, revision: int) -> list[str] | None:
    """Services that run by another revision; None while none has spoken."""
    speaking = [status for status in view.of(ServiceStatus) if status.service in FOLLOWERS]
    if not speaking:
        return None
    return [status.instance for status in speaking if status.revision != revision]
