"""A rebalance storm: members that join a consumer group, take partitions, do nothing with them, and leave."""

import asyncio
from collections.abc import Mapping

from loadtest.nemesis.fault import Evidence
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import ConsumerSettings, KafkaError, TopicPartition

POLL_S = 0.2
BROKER_WITHIN_S, AGAIN_S = 90.0, 0.5
TAKEN_S = 20.0
"""A rebalance waits for the slowest member, who may be frozen."""


class Intruder:
    """A member that never works."""

    def __init__(self) -> None:
        self.taken = 0
        """Partitions it was given, over all rebalances."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.taken += len(partitions)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """They were not used."""


async def storm(
    bootstrap: str,
    group: str,
    topic: str,
    *,
    joins: int,
    stay_s: float,
    lanes: Mapping[str, tuple[tuple[int, ...], ...]] | None = None,
) -> Evidence:
    """`joins` members one after another: each joins, holds its partitions for `stay_s`, and leaves."""
    taken = [await _visit(bootstrap, group, topic, stay_s, lanes or {}) for _ in range(joins)]
    if not any(taken):
        return Evidence()
    return Evidence(f"{joins} strangers were given {', '.join(map(str, taken))} partitions of {topic}")


async def _joined(connection: Connection, settings: ConsumerSettings, intruder: Intruder) -> AioKafkaConsumer:
    """Tries again while there is no broker: faults overlap."""
    given_up_at = asyncio.get_running_loop().time() + BROKER_WITHIN_S
    while True:
        consumer = AioKafkaConsumer(connection, settings, intruder)
        try:
            await consumer.start()
        except KafkaError:
            if asyncio.get_running_loop().time() > given_up_at:
                raise
            await asyncio.sleep(AGAIN_S)
        else:
            return consumer


async def _visit(
    bootstrap: str, group: str, topic: str, stay_s: float, lanes: Mapping[str, tuple[tuple[int, ...], ...]]
) -> int:
    intruder = Intruder()
    settings = ConsumerSettings(group=group, topics=(topic,), lanes=lanes)
    consumer = await _joined(Connection(bootstrap, client_id="intruder"), settings, intruder)
    loop = asyncio.get_running_loop()
    given_up_at, leaves_at = loop.time() + TAKEN_S, None
    try:
        while loop.time() < (leaves_at or given_up_at):
            await consumer.poll(None, max_records=0, timeout_s=POLL_S)
            if intruder.taken and leaves_at is None:
                leaves_at = loop.time() + stay_s
    finally:
        await consumer.stop()
    return intruder.taken
