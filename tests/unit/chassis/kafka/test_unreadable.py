"""What a consumer makes of bytes that the client library cannot decode, batch by batch."""

import struct
from collections.abc import Iterator
from itertools import count

import pytest
from aiokafka import ConsumerRecord
from aiokafka import TopicPartition as Target
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy
from aiokafka.record.util import calc_crc32c, decode_varint_py

from services.chassis.kafka.unreadable import Batches, ReadableRecords

GZIP = 1
PADDING = b"x" * 60
"""Enough to be compressed at all."""
UNREADABLE = "x-unreadable"
_numbers = count()


class NotText(str):
    """A header's name that is not UTF-8."""

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


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


def test_a_codec_whose_library_is_missing_is_an_error_and_passes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed = batch(0, ["a", "b", "c"], GZIP)
    monkeypatch.setattr("aiokafka.record.memory_records.DefaultRecordBatch", _DefaultRecordBatchPy)
    monkeypatch.setattr("aiokafka.codec.has_gzip", lambda: False)
    records = reader(compressed)
    with pytest.raises(UnsupportedCodecError):
        list(records)
    assert records.next_fetch_offset == 0


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


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_of_a_format_that_is_not_stored_any_more_is_an_error(magic: int) -> None:
    old = batch(0, ["a"])
    old[struct.calcsize(">qii")] = magic
    with pytest.raises(CorruptRecordException, match=r"letters.* offset 0"):
        list(reader(old))
