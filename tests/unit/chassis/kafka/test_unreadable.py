"""What a consumer makes of bytes that the client library cannot decode, batch by batch."""

import errno
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from mmap import mmap

import pytest
from aiokafka import ConsumerRecord
from aiokafka import TopicPartition as Target
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy
from aiokafka.record.legacy_records import _LegacyRecordBatchBuilderPy
from aiokafka.record.util import calc_crc32c, decode_varint_py

from services.chassis.kafka import unreadable
from services.chassis.kafka.unreadable import Batches, ReadableRecords
from tests.headers import NotText

unreadable.install()

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MANY = (1 << 31) - 1
LAST_OFFSET_AT = struct.calcsize(">qiibIh")
COUNT_AT = struct.calcsize(">qiibIhiqqqhi")
PADDING = b"x" * 60
"""Enough to be compressed at all."""
UNREADABLE = "x-unreadable"
_numbers = count()


def batch(base: int, names: list[str], codec: int = 0) -> bytearray:
    """One record for each header name, with the value and the timestamp of its offset."""
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, 1 << 20)
    for number, name in enumerate(names):
        offset = base + number
        builder.append(number, 1_000 + offset, b"key", b"%d" % offset, [(name, PADDING), ("empty", None)])
    built = bytearray(builder.build())
    assert _DefaultRecordBatchPy(built).compression_type == codec
    struct.pack_into(">q", built, 0, base)
    return built


def seal(found: bytearray) -> bytearray:
    """With the right checksum for what it is now."""
    checksum = calc_crc32c(bytes(found[_DefaultRecordBatchPy.ATTRIBUTES_OFFSET :]))
    struct.pack_into(">I", found, _DefaultRecordBatchPy.CRC_OFFSET, checksum)
    return found


def reader(*batches: bytes | bytearray, at: int = 0, tp: Target | None = None) -> ReadableRecords:
    tp = tp or Target(f"letters-{next(_numbers)}", 0)
    return ReadableRecords(tp, Batches(b"".join(batches)), None, at, None, None, True, 0)


def summary(records: Iterator[ConsumerRecord]) -> list[tuple[int, bytes | None]]:
    """Offset and value of each; every one without a value says why."""
    found = list(records)
    for record in found:
        assert (record.value is None) == (UNREADABLE in dict(record.headers)) == (record.key is None)
    return [(record.offset, record.value) for record in found]


@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_header_name_that_is_not_text_costs_that_record_alone(codec: int) -> None:
    records = reader(batch(0, ["a", "b"]), batch(2, ["a", NotText(), "b"], codec), batch(5, [NotText(), "a"]))
    found = list(records)
    assert [(record.offset, record.value) for record in found] == [
        (0, b"0"),
        (1, b"1"),
        (2, b"2"),
        (3, None),
        (4, b"4"),
        (5, None),
        (6, b"6"),
    ]
    assert found[3].headers == ((UNREADABLE, b"a header's name is not UTF-8"),)
    assert [record.timestamp for record in found] == [1_000 + offset for offset in range(7)]
    assert records.next_fetch_offset == 7


def test_reading_may_begin_anywhere_in_a_batch() -> None:
    assert summary(reader(batch(2, [NotText(), "a", NotText(), "b"]), at=4)) == [(4, None), (5, b"5")]


def test_the_position_is_right_after_every_record() -> None:
    records = reader(batch(0, ["a", NotText(), "b"]))
    for offset in range(3):
        assert next(records).offset == offset
        assert records.next_fetch_offset == offset + 1


def test_a_header_without_a_value_has_an_empty_one() -> None:
    assert next(reader(batch(0, ["a"]))).headers == (("a", PADDING), ("empty", b""))


def test_a_record_of_another_length_than_it_says_costs_that_record_alone() -> None:
    broken = batch(0, ["a", "b", "c"])
    at = broken.index(b"key", broken.index(b"key") + 1)
    broken[at - 1] = 2 * 60  # the length of the second record's key
    assert summary(reader(seal(broken), batch(3, ["a"]))) == [(0, b"0"), (1, None), (2, b"2"), (3, b"3")]


def test_what_follows_a_record_of_an_impossible_length_is_unreadable_to_the_end_of_its_batch() -> None:
    broken = batch(0, ["a", "b", "c"])
    length, first = decode_varint_py(broken, _DefaultRecordBatchPy.HEADER_STRUCT.size)
    broken[first + length] = 0x01  # minus one, the length of the second
    assert summary(reader(seal(broken), batch(3, ["a"]))) == [(0, b"0"), (1, None), (2, None), (3, b"3")]


def test_every_offset_of_what_cannot_be_decompressed_is_unreadable() -> None:
    broken = batch(4, ["a", "b", "c"], GZIP)
    broken[_DefaultRecordBatchPy.HEADER_STRUCT.size] ^= 0xFF
    assert summary(reader(seal(broken), batch(7, ["a"]), at=5)) == [(5, None), (6, None), (7, b"7")]


def test_a_codec_of_the_future_is_unreadable() -> None:
    broken = batch(0, ["a", "b"])
    broken[_DefaultRecordBatchPy.ATTRIBUTES_OFFSET + 1] |= 0x07
    assert summary(reader(seal(broken), batch(2, ["a"]))) == [(0, None), (1, None), (2, b"2")]


def test_without_the_library_of_a_codec_nothing_starts() -> None:
    script = "import sys; sys.modules['cramjam'] = None; import services.chassis.kafka.unreadable"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "import of cramjam halted" in done.stderr


def test_no_memory_to_unpack_is_an_error_and_passes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> mmap:
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr("services.chassis.kafka.decompression.mmap", full)
    records = reader(batch(0, ["a", "b", "c"], ZSTD))
    with pytest.raises(MemoryError):
        list(records)
    assert records.next_fetch_offset == 0


@pytest.mark.parametrize("codec", [0, GZIP, ZSTD])
@pytest.mark.parametrize(("count", "readable"), [(-(1 << 31), 0), (-1, 0), (0, 0), (1, 1), (2, 2), (4, 3), (MANY, 3)])
def test_a_count_that_lies_costs_the_records_it_denies(codec: int, count: int, readable: int) -> None:
    lying = batch(0, ["a", "b", "c"], codec)
    struct.pack_into(">i", lying, COUNT_AT, count)
    expected = [(offset, b"%d" % offset if offset < readable else None) for offset in range(3)]
    assert summary(reader(seal(lying), batch(3, ["a"]))) == [*expected, (3, b"3")]


@pytest.mark.parametrize("codec", [0, GZIP])
def test_of_offsets_that_no_batch_can_have_one_record_tells(codec: int) -> None:
    lying = batch(0, ["a", NotText(), "c"], codec)
    struct.pack_into(">i", lying, COUNT_AT, MANY)
    struct.pack_into(">i", lying, LAST_OFFSET_AT, MANY - 1)
    records = reader(seal(lying), batch(MANY, ["a"]))
    assert summary(records) == [(0, b"0"), (1, None), (2, b"2"), (3, None), (MANY, b"%d" % MANY)]
    assert records.next_fetch_offset == MANY + 1


@pytest.mark.parametrize("told", [1_000_000, 3, 0, -1])
def test_a_record_that_tells_a_wrong_offset_is_unreadable_and_so_is_the_rest_of_its_batch(told: int) -> None:
    builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset in (0, told, 2):
        builder.append(offset, 1_000, b"key", b"%d" % offset, [])
    records = reader(seal(builder.build()), batch(3, ["a"]))
    assert summary(records) == [(0, b"0"), (1, None), (2, None), (3, b"3")]


def test_the_gaps_of_a_compacted_batch_are_no_fault() -> None:
    builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset in (2, 5):
        builder.append(offset, 1_000, b"key", b"%d" % offset, [])
    compacted = builder.build()
    struct.pack_into(">i", compacted, LAST_OFFSET_AT, 7)
    records = reader(seal(compacted))
    assert summary(records) == [(2, b"2"), (5, b"5")]
    assert records.next_fetch_offset == 8


def test_a_wrong_checksum_is_fetched_again_and_then_passed_offset_by_offset() -> None:
    tp = Target("letters-damaged", 0)
    good, damaged = batch(0, ["a"]), batch(1, ["a", "b"])
    damaged[-1] ^= 0xFF
    first = reader(good, damaged, tp=tp)
    assert summary(first) == [(0, b"0")]
    assert first.next_fetch_offset == 1
    assert summary(reader(damaged, batch(3, ["a"]), at=1, tp=tp)) == [(1, None)]
    assert summary(reader(damaged, batch(3, ["a"]), at=2, tp=tp)) == [(2, None)]
    assert summary(reader(batch(3, ["a"]), at=3, tp=tp)) == [(3, b"3")]


def test_a_wrong_checksum_that_was_the_connections_fault_costs_nothing() -> None:
    tp = Target("letters-in-transit", 0)
    damaged = batch(0, ["a", "b"])
    damaged[-1] ^= 0xFF
    assert summary(reader(damaged, tp=tp)) == []
    assert summary(reader(batch(0, ["a", "b"]), tp=tp)) == [(0, b"0"), (1, b"1")]


def legacy(magic: int, codec: int) -> bytes:
    builder = _LegacyRecordBatchBuilderPy(magic, codec, 1 << 20)
    for offset in range(3):
        builder.append(offset, 1_000 if magic else None, b"key", b"%d" % offset + PADDING)
    return bytes(builder.build())


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, 0), (0, GZIP), (0, SNAPPY), (1, 0), (1, GZIP), (1, SNAPPY), (1, LZ4)]
)
def test_batches_of_the_formats_before_are_read(magic: int, codec: int) -> None:
    found = list(reader(legacy(magic, codec), batch(3, ["a"])))
    assert [(record.offset, record.value) for record in found] == [
        (0, b"0" + PADDING),
        (1, b"1" + PADDING),
        (2, b"2" + PADDING),
        (3, b"3"),
    ]
    assert found[0].timestamp == (1_000 if magic else -1)


@pytest.mark.parametrize("magic", [0, 1])
def test_one_of_them_that_cannot_be_read_is_fetched_again_and_then_passed_offset_by_offset(magic: int) -> None:
    tp = Target(f"letters-v{magic}", 0)
    damaged = bytearray(legacy(magic, GZIP))
    damaged[-10] ^= 0xFF
    assert summary(reader(damaged, batch(3, ["a"]), tp=tp)) == []
    for offset in range(3):
        records = reader(damaged, batch(3, ["a"]), at=offset, tp=tp)
        assert summary(records) == [(offset, None)]
        assert records.next_fetch_offset == offset + 1
    assert summary(reader(batch(3, ["a"]), at=3, tp=tp)) == [(3, b"3")]


@pytest.mark.parametrize("length", [-12, -1, 0, 1, 20])
def test_what_is_no_batch_is_passed_the_same_way(length: int) -> None:
    tp = Target(f"letters-rubbish-{length}", 0)
    rubbish = struct.pack(">qi", 7, length) + b"\x02" * 20
    assert summary(reader(rubbish, at=7, tp=tp)) == []
    assert summary(reader(rubbish, at=7, tp=tp)) == [(7, None)]
