"""The nouns and ports of Kafka. Services speak to these; adapters stand behind them."""

from asyncio import Future
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record read from the log. `timestamp` is the broker's, in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def tp(self) -> TopicPartition:
        """Where it stands."""
        return TopicPartition(self.topic, self.partition)

    def header(self, name: str) -> str | None:
        """The last value of a header; None when absent or not UTF-8 (one bad header must not hide a record)."""
        for key, value in reversed(self.headers):
            if key == name:
                try:
                    return value.decode()
                except UnicodeDecodeError:
                    return None
        return None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to append. Without a partition the key decides."""

    topic: str
    value: bytes | None
    """None: a tombstone, with which a compacted topic lets go of the key."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


class Appended(NamedTuple):
    """The broker's acknowledgement."""

    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed position: the next offset to read, and up to 4,096 bytes of the owner's own."""

    offset: int
    metadata: str = ""


class KafkaError(Exception):
    """The base of what these ports raise."""


class RecordTooLargeError(KafkaError):
    """The record would be refused by the broker; it was not sent, and the producer is unharmed."""


class ProducerDeadError(KafkaError):
    """A non-retriable produce error: the process must end, and no offset may pass the record."""


class RebalanceListener(Protocol):
    """Told before partitions go and after they come. Rebalances are eager: all go, then the new ones come.

    A consumer that stops is not told: whoever stops it commits first.
    """

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """They are about to go; heartbeats continue while this runs (bounded by the rebalance time-out)."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """They are ours, positioned at their commits (or the earliest record); nothing is polled until this returns.

        Empty for a member without a partition. No heartbeats are sent meanwhile: stay well below the session
        time-out.
        """


class Consumer(Protocol):
    """A member of a consumer group. Never commits by itself."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Leaves the group; bounded."""

    async def poll(
        self, partitions: Collection[TopicPartition] | None, *, max_records: int, timeout_s: float
    ) -> Sequence[Record]:
        """Records of these partitions (None: all assigned), in order within each.

        An empty collection or `max_records` of 0 fetches nothing but keeps the membership alive for `timeout_s`.
        Partitions that are not (or no longer) assigned are left out. Records of one call are from the current
        assignment only. A rebalance under way may hold the call longer than `timeout_s`. Raises KafkaError for what
        the client cannot mend by itself, and whatever the listener raised. A record whose bytes cannot be decoded
        comes in its place without key and value, and says why in the header `x-unreadable`.
        """

    def assignment(self) -> frozenset[TopicPartition]: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    async def commit(self, offsets: Mapping[TopicPartition, Commit]) -> bool:
        """False when the group has moved on (a rebalance): normal, the new owner starts from the older commit."""

    async def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Commit]:
        """Only those that have a commit, with its metadata."""

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The next offset each would return; partitions not assigned or not yet positioned are left out."""

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]: ...


class Producer(Protocol):
    """acks=all, idempotent."""

    @property
    def dead(self) -> "Future[None]":
        """Fails with ProducerDeadError at the first non-retriable error, so that the app can end the process."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Flushes, bounded; what is unacknowledged by then fails with KafkaError: outcome unknown."""

    async def send(self, record: Outgoing) -> "Future[Appended]":
        """Queues one record; the future is its acknowledgement. Await many of them together.

        Raises RecordTooLargeError before anything is sent, KafkaError for a topic or partition that does not exist
        (it may be new: that takes 10 s to find out). The future fails with ProducerDeadError; retriable faults are
        retried until the producer stops.
        """

    async def send_all(self, records: Sequence[Outgoing]) -> Sequence[Appended]:
        """Queues them in order and waits for every acknowledgement."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a group member behaves; the defaults suit orchestrator and aggregator."""

    group: str | None
    """None: a reader outside any group, assigned every partition from its earliest record; it cannot commit."""
    topics: tuple[str, ...]
    session_timeout_s: float = 6.0
    heartbeat_s: float = 1.5
    rebalance_timeout_s: float = 10.0
    max_poll_interval_s: float = 600.0
    lanes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """Partition lists by topic, highest lane first: every member gets its share of each. Empty: a plain range."""
