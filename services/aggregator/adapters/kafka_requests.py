"""Reads single requests again, by their coordinates, for the dead-letter topic."""

from schemas.events import RequestCoordinates
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import ConsumerSettings, Record, TopicPartition

FETCH_TIMEOUT_S = 5.0


class KafkaRequestReader:
    """One group-less consumer for each ingress topic that ever needed it: conflicts are rare, and come in bursts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._consumers: dict[str, AioKafkaConsumer] = {}

    async def fetch(self, coordinates: RequestCoordinates) -> Record | None:
        """The record at these coordinates; None when it is no longer retained. Raises KafkaError."""
        consumer = await self._consumer(coordinates.topic)
        tp = TopicPartition(coordinates.topic, coordinates.partition)
        begin = await consumer.beginning_offsets([tp])
        if coordinates.offset < begin[tp]:
            return None
        consumer.seek(tp, coordinates.offset)
        records = await consumer.poll([tp], max_records=1, timeout_s=FETCH_TIMEOUT_S)
        return next((record for record in records if record.offset == coordinates.offset), None)

    async def stop(self) -> None:
        """Closes the consumers."""
        for consumer in self._consumers.values():
            await consumer.stop()

    async def _consumer(self, topic: str) -> AioKafkaConsumer:
        if topic not in self._consumers:
            settings = ConsumerSettings(group=None, topics=(topic,))
            consumer = AioKafkaConsumer(self._connection, settings, _Silent())
            await consumer.start()
            self._consumers[topic] = consumer
        return self._consumers[topic]


class _Silent:
    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing is held."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Every fetch seeks for itself."""
