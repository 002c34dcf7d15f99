"""Sizes and partitions of records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kafka.records import fits, max_record_bytes, partition_of, record_bytes, require_size
from services.chassis.kafka.types import Outgoing, RecordTooLargeError


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # From the tests of Kafka's own Java client.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_partition_is_javas(key: bytes, hashed: int) -> None:
    for partitions in (1, 2, 12, 100):
        assert partition_of(key, partitions) == (hashed & 0x7FFF_FFFF) % partitions


@given(st.binary(max_size=60), st.integers(1, 50))
def test_a_partition_exists(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions


@given(
    st.binary(max_size=300),
    st.none() | st.binary(max_size=50),
    st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=9))),
)
def test_the_measure_covers_every_part(value: bytes, key: bytes | None, headers: list[tuple[str, bytes]]) -> None:
    parts = len(value) + len(key or b"") + sum(len(name.encode()) + len(content) for name, content in headers)
    assert record_bytes(Outgoing("t", value, key, tuple(headers))) >= parts


def test_the_limit_is_the_topics() -> None:
    large = b"x" * (3 << 19)
    assert not fits(Outgoing("inference-events", large))
    assert fits(Outgoing("inference-events-dlq", large))
    with pytest.raises(RecordTooLargeError, match=rf"inference-events has \d+ bytes; at most {1 << 20}"):
        require_size(Outgoing("inference-events", large))


def test_headers_count_towards_the_limit() -> None:
    assert not fits(Outgoing("t", b"", headers=(("h", b"x" * max_record_bytes("t")),)))
