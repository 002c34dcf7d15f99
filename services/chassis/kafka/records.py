"""What every producer does to a record before it is sent: measure it, and find its partition."""

from functools import lru_cache

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from schemas.topics import DEAD_LETTER_SUFFIX, MAX_DEAD_LETTER_BYTES, MAX_RECORD_BYTES
from services.chassis.kafka.murmur2 import murmur2
from services.chassis.kafka.types import Outgoing, RecordTooLargeError

MAX_COMMIT_METADATA_BYTES = 4_096

_hash = lru_cache(maxsize=1 << 14)(murmur2)
"""The hash is computed in Python, and a run's id keys every record of the run."""


def max_record_bytes(topic: str) -> int:
    """The largest record a topic takes, key and headers included, uncompressed."""
    return MAX_DEAD_LETTER_BYTES if topic.endswith(DEAD_LETTER_SUFFIX) else MAX_RECORD_BYTES


def record_bytes(record: Outgoing) -> int:
    """The size of a record on the wire, at most, in bytes."""
    return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(record.key, record.value, list(record.headers)))


def fits(record: Outgoing) -> bool:
    """Whether its topic takes it: a stream's handler asks before it returns a record of any size."""
    return record_bytes(record) <= max_record_bytes(record.topic)


def require_size(record: Outgoing) -> None:
    """Raises RecordTooLargeError, naming the topic.

    One record that the broker refuses makes every later send of an idempotent aiokafka producer to that partition
    fail: it must never leave.
    """
    size, limit = record_bytes(record), max_record_bytes(record.topic)
    if size > limit:
        raise RecordTooLargeError(f"a record for {record.topic} has {size} bytes; at most {limit} are taken")


def require_metadata(metadata: str) -> None:
    """Raises ValueError for commit metadata that the broker would refuse."""
    if (size := len(metadata.encode())) > MAX_COMMIT_METADATA_BYTES:
        raise ValueError(f"commit metadata has {size} bytes; at most {MAX_COMMIT_METADATA_BYTES} are taken")


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`, as Kafka's own clients choose it (murmur2)."""
    return int(_hash(key) & 0x7FFF_FFFF) % partitions
