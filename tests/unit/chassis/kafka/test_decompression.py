"""Batches of every codec: honest ones are read, and those that unpack to gigabytes cost no more than the bound."""

import gzip
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest
from aiokafka import TopicPartition as Target
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kafka import unreadable
from services.chassis.kafka.decompression import MAX_UNPACKED_BYTES, UnpackingError, gunzip, unlz4, unsnap, unzstd

unreadable.install()

MIB = 1 << 20
BLOCK = bytes(16 * MIB)
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
UNREADABLE = "x-unreadable"
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

Codec = tuple[Callable[..., bytes], Callable[[bytes], Any]]
CODECS: dict[int, Codec] = {
    GZIP: (gzip_encode, gunzip),
    SNAPPY: (snappy_encode, unsnap),
    LZ4: (lz4_encode, unlz4),
    ZSTD: (zstd_encode, unzstd),
}


def xerial(*blocks: bytes) -> bytes:
    return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def snap(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(content))


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: gzip.compress(bytes(256 * MIB), 1)),
    "gzip of many members": (GZIP, lambda: gzip.compress(BLOCK) * 60),
    "snappy": (SNAPPY, lambda: snap(bytes(64 * MIB))),
    "snappy that lies": (SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + b"x" * 100),
    "xerial snappy": (SNAPPY, lambda: xerial(*[snap(BLOCK)] * 3)),
    "lz4": (LZ4, lambda: lz4_encode(bytes(256 * MIB))),
    "lz4 of many frames": (LZ4, lambda: lz4_encode(BLOCK) * 60),
    "headers": (ZSTD, lambda: zstd_encode(b"\x80\x80\x80\x10\0\0\0\0\0\x80\x80\x80\x10" + BLOCK)),
    "zstd": (ZSTD, lambda: zstd_encode(bytes(256 * MIB))),
    "zstd with a large window": (ZSTD, lambda: zstd_encode(bytes(40 * MIB), 22)),
    "zstd of many frames": (ZSTD, lambda: zstd_encode(BLOCK) * 60),
}


def sealed(codec: int, packed: bytes, count: int) -> bytes:
    """A batch that says that it has `count` records, with the right checksum."""
    header = _DefaultRecordBatchPy.HEADER_STRUCT
    length = header.size - 12 + len(packed)
    found = bytearray(header.pack(0, length, -1, 2, 0, codec, count - 1, 1_000, 1_000, -1, -1, -1, count) + packed)
    checksum = calc_crc32c(bytes(found[_DefaultRecordBatchPy.ATTRIBUTES_OFFSET :]))
    struct.pack_into(">I", found, _DefaultRecordBatchPy.CRC_OFFSET, checksum)
    return bytes(found)


def plain(values: list[bytes], header_count: int = 0) -> bytes:
    """The records of a batch, not compressed, each with so many empty headers."""
    builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 40)
    for offset, value in enumerate(values):
        builder.append(offset, 1_000, None, value, [("", b"")] * header_count)
    return bytes(builder.build())[_DefaultRecordBatchPy.HEADER_STRUCT.size :]


def read(batch: bytes) -> list[tuple[int, bytes | None, str]]:
    """Offset, value, and why there is none, of each record of a batch."""
    records = unreadable.ReadableRecords(
        Target("letters", 0), unreadable.Batches(batch), None, 0, None, None, True, 0
    )
    return [(record.offset, record.value, dict(record.headers).get(UNREADABLE, b"").decode()) for record in records]


@pytest.mark.parametrize("codec", CODECS)
@given(content=st.one_of(st.binary(min_size=1), st.binary(min_size=1, max_size=9).map(lambda part: part * 20_000)))
def test_what_was_packed_is_unpacked(codec: int, content: bytes) -> None:
    pack, unpack = CODECS[codec]
    assert bytes(unpack(pack(content))) == content


@pytest.mark.parametrize("codec", CODECS)
@given(values=st.lists(st.binary(max_size=200), min_size=1, max_size=50))
def test_honest_batches_are_read(codec: int, values: list[bytes]) -> None:
    pack, _ = CODECS[codec]
    assert read(sealed(codec, pack(plain(values)), len(values))) == [
        (offset, value, "") for offset, value in enumerate(values)
    ]


@given(parts=st.lists(st.binary(min_size=1), min_size=2, max_size=5))
def test_what_is_packed_in_parts_is_unpacked_whole(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert gunzip(b"".join(map(gzip.compress, parts))) == whole
    assert unsnap(xerial(*map(snap, parts))) == whole
    assert unsnap(snap(whole)) == whole
    assert unlz4(b"".join(map(lz4_encode, parts))) == whole
    assert unzstd(b"".join(map(zstd_encode, parts))) == whole


@pytest.mark.parametrize("codec", CODECS)
def test_exactly_the_bound_is_unpacked_and_a_byte_more_is_not(codec: int) -> None:
    pack, unpack = CODECS[codec]
    assert len(unpack(pack(bytes(MAX_UNPACKED_BYTES)))) == MAX_UNPACKED_BYTES
    with pytest.raises(UnpackingError, match="more than 33,554,432 bytes"):
        unpack(pack(bytes(MAX_UNPACKED_BYTES + 1)))


@pytest.mark.parametrize("codec", CODECS)
@given(cut=st.integers(1, 60))
def test_what_is_cut_off_is_broken(codec: int, cut: int) -> None:
    pack, unpack = CODECS[codec]
    packed = pack(bytes(range(256)))
    with pytest.raises((UnpackingError, EOFError, cramjam.DecompressionError)):
        unpack(packed[:-cut])


@pytest.mark.parametrize("size", [-1, -4, -(1 << 31), 1 << 20, (1 << 31) - 1])
def test_a_block_cannot_be_larger_than_its_frame_nor_smaller_than_nothing(size: int) -> None:
    with pytest.raises(UnpackingError):
        unsnap(xerial(snap(b"a")) + struct.pack(">i", size) + snap(b"b"))


@pytest.mark.parametrize("codec", CODECS)
def test_more_headers_than_memory_are_unreadable(codec: int) -> None:
    pack, _ = CODECS[codec]
    ((offset, value, why),) = read(sealed(codec, pack(plain([b"x"], header_count=600_000)), 1))
    assert (offset, value) == (0, None)
    assert "more than 500,000 records and headers" in why


@pytest.mark.parametrize("headers", [0, 5, 150_000])
def test_large_batches_of_few_parts_are_read(headers: int) -> None:
    values = [bytes(2 * MIB), b"small", bytes(MIB)]
    found = read(sealed(ZSTD, zstd_encode(plain(values, headers)), 3))
    assert [value for _, value, _ in found] == values


@given(rubbish=st.binary(min_size=1, max_size=64), at=st.integers(0, 40), codec=st.sampled_from([GZIP, ZSTD]))
def test_a_large_batch_that_is_broken_is_unreadable_to_its_end(rubbish: bytes, at: int, codec: int) -> None:
    pack, _ = CODECS[codec]
    content = bytearray(plain([b"first", bytes(MIB)]))
    content[at : at + len(rubbish)] = rubbish
    found = read(sealed(codec, pack(bytes(content)), 2))
    assert [offset for offset, _, _ in found] == [0, 1]


READ_ALL = """
import re, sys
from pathlib import Path
from tests.unit.chassis.kafka.test_decompression import read
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10
files = sorted(Path(sys.argv[1]).iterdir())
read(files[0].read_bytes())
before = peak()
for file in files[1:]:
    found = read(file.read_bytes())
    print(file.name, peak() - before, *(f"{offset}:{value}:{bool(why)}" for offset, value, why in found), sep=",")
"""
"""Reads the first batch for nothing. What the kernel calls the high water mark is that of the program alone."""


def test_bombs_are_unreadable_and_take_no_memory_to_speak_of(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(sealed(ZSTD, zstd_encode(plain([b"x"])), 1))
    for name, (codec, pack) in BOMBS.items():
        (tmp_path / name).write_bytes(sealed(codec, pack(), 3))
    done = subprocess.run([sys.executable, "-c", READ_ALL, tmp_path], capture_output=True, text=True, check=True)
    found = [line.split(",") for line in done.stdout.splitlines()]
    assert [name for name, *_ in found] == sorted(BOMBS)
    assert {tuple(records) for _, _, *records in found} == {("0:None:True", "1:None:True", "2:None:True")}
    assert max(int(mib) for _, mib, *_ in found) < 3 * MAX_UNPACKED_BYTES // MIB
