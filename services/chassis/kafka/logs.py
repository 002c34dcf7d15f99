"""A topic as a log, by the real client: what every service reads configuration, statuses or events with."""

from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.types import ConsumerSettings


def log_of(connection: Connection, topic: str, *, tail: int | None = None) -> LogReader:
    """Not started yet. `tail`: begin at most so many records before the end of each partition."""
    settings = ConsumerSettings(group=None, topics=(topic,))
    return LogReader(lambda listener: AioKafkaConsumer(connection, settings, listener), tail=tail)
