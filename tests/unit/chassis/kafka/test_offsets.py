"""What a broker does not tell is left out, and never taken for nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition as Target
from aiokafka.errors import KafkaError as ClientError
from aiokafka.errors import NodeNotReadyError
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from services.chassis.kafka import offsets
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.offsets import KafkaOffsetReader, Offsets
from services.chassis.kafka.types import KafkaError, TopicPartition

FIRST, SECOND = TopicPartition("letters", 0), TopicPartition("letters", 1)
GROUPS = {"readers": ("letters",)}
LOADING, NOT_LEADER = 14, 6


@dataclass
class Cluster:
    """Two partitions of `letters`, each on a broker of its own, and a coordinator, as a client knows them."""

    leaders: dict[int, int] = field(default_factory=lambda: {0: 1, 1: 2})
    group_error: int = 0
    partition_errors: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    batch: bytes = b""
    looked: int = 0
    coordinators_found: int = 0

    async def fetch_all_metadata(self) -> "Cluster":
        self.looked += 1
        return self

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self.leaders) if topic == "letters" else None

    def leader_for_partition(self, target: Target) -> int:
        return self.leaders[target.partition]

    async def coordinator_lookup(self, kind: int, group: str) -> int:
        self.coordinators_found += 1
        return 1

    async def send(self, node: int, request: Any) -> Any:
        if node in self.gone:
            raise NodeNotReadyError
        if isinstance(request, OffsetFetchRequest):
            told = [(number, 4, "", 0) for number in self.leaders]
            return SimpleNamespace(
                error_code=self.group_error, topics=[] if self.group_error else [("letters", told)]
            )
        if isinstance(request, FetchRequest):
            ((topic, ((number, *_),)),) = request.topics
            return SimpleNamespace(topics=[(topic, [(number, self.partition_errors.get(number, 0), 9, self.batch)])])
        asked = [(topic, number, which) for topic, found in request._topics for number, which in found]
        return SimpleNamespace(topics=[(topic, [self._offset(number, which)]) for topic, number, which in asked])

    def _offset(self, number: int, which: int) -> tuple[int, int, int, int]:
        return number, self.partition_errors.get(number, 0), -1, 2 if which == offsets.EARLIEST else 9


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def reader(cluster: Cluster) -> KafkaOffsetReader:
    found = KafkaOffsetReader(Connection("127.0.0.1:1"))
    found._client = cluster
    return found


async def test_all_is_told_and_the_layout_is_remembered(reader: KafkaOffsetReader, cluster: Cluster) -> None:
    for _ in range(3):
        assert await reader.read(GROUPS) == {"readers": {FIRST: Offsets(2, 4, 9), SECOND: Offsets(2, 4, 9)}}
    assert (cluster.looked, cluster.coordinators_found) == (1, 1)


async def test_a_coordinator_that_is_loading_knows_no_commits_but_does_not_say_there_are_none(
    reader: KafkaOffsetReader, cluster: Cluster
) -> None:
    cluster.group_error = LOADING
    with pytest.raises(KafkaError, match="tells no offsets"):
        await reader.read(GROUPS)
    cluster.group_error = 0
    assert (await reader.read(GROUPS))["readers"][FIRST] == Offsets(2, 4, 9)
    assert cluster.coordinators_found == 2


@pytest.mark.parametrize(
    "fail",
    [
        lambda cluster: cluster.partition_errors.update({1: NOT_LEADER}),
        lambda cluster: cluster.leaders.update({1: -1}),
        lambda cluster: cluster.gone.add(2),
    ],
    ids=["another leads", "nobody leads", "its broker is gone"],
)
async def test_a_partition_that_does_not_answer_is_unknown_and_looked_for_again(
    reader: KafkaOffsetReader, cluster: Cluster, fail: Callable[[Cluster], None]
) -> None:
    fail(cluster)
    assert await reader.read(GROUPS) == {"readers": {FIRST: Offsets(2, 4, 9), SECOND: None}}
    cluster.leaders, cluster.partition_errors, cluster.gone = {0: 1, 1: 2}, {}, set()
    assert (await reader.read(GROUPS))["readers"][SECOND] == Offsets(2, 4, 9)


async def test_no_broker_at_all_is_an_error(reader: KafkaOffsetReader, cluster: Cluster) -> None:
    cluster.gone = {1, 2}
    with pytest.raises(KafkaError, match="tells no offsets"):
        await reader.read(GROUPS)


async def test_a_broker_that_does_not_answer_is_not_waited_for(
    reader: KafkaOffsetReader, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(reader, "_timeout_s", 0.0)
    monkeypatch.setattr(cluster, "send", never)
    with pytest.raises(KafkaError, match="Timeout"):
        await reader.read(GROUPS)


def batch(attributes: int, stamped_ms: int) -> bytes:
    """Of two records that were sent at 1 ms and 3 ms; the broker writes its own time into the header."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=10_000,
    )  # fmt: skip
    for offset, sent_ms in enumerate((1, 3)):
        builder.append(offset, sent_ms, None, b"x", [])
    built = bytearray(builder.build())
    built[21:23] = attributes.to_bytes(2, "big")
    built[35:43] = stamped_ms.to_bytes(8, "big")
    return bytes(built)


async def test_a_stamp_is_the_brokers(reader: KafkaOffsetReader, cluster: Cluster) -> None:
    await reader.read(GROUPS)
    cluster.batch = batch(offsets.LOG_APPEND_TIME, 1_700_000_000_123)
    assert await reader.stamps({FIRST: 5, SECOND: 6}) == dict.fromkeys((FIRST, SECOND), 1_700_000_000_123)


@pytest.mark.parametrize(
    "found", [b"", b"\0" * 100, batch(0, 1_700_000_000_123)], ids=["none", "no batch", "clients'"]
)
async def test_other_stamps_are_none(reader: KafkaOffsetReader, cluster: Cluster, found: bytes) -> None:
    await reader.read(GROUPS)
    cluster.batch = found
    assert await reader.stamps({FIRST: 5}) == {}


async def test_a_record_that_cannot_be_read_has_no_stamp(reader: KafkaOffsetReader, cluster: Cluster) -> None:
    assert await reader.stamps({FIRST: 5}) == {}, "nobody has looked yet"
    await reader.read(GROUPS)
    cluster.batch = batch(offsets.LOG_APPEND_TIME, 1)
    cluster.partition_errors = {0: NOT_LEADER}
    cluster.gone = {2}
    assert await reader.stamps({FIRST: 5, SECOND: 5}) == {}


async def test_an_error_of_the_client_is_one_of_ours(
    reader: KafkaOffsetReader, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> None:
        raise ClientError("no metadata")

    monkeypatch.setattr(cluster, "fetch_all_metadata", refused)
    with pytest.raises(KafkaError, match="no metadata"):
        await reader.read(GROUPS)
