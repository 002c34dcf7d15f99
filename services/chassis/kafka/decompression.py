"""How a batch is unpacked: with bounds, for a megabyte of rubbish on the wire may say gigabytes of zeros.

aiokafka 0.14 unpacks a batch whole, whatever comes out of it, and so one batch that any client may send would end
every consumer of its partition, one after the other, for want of memory. The decoders here take the place of the
library's and give the same bytes. They raise as soon as there would be more than the bound, as they do for what is
broken.

cramjam is imported here, where aiokafka would do without it until the first batch that needs it: an installation that
lacks it fails when it starts, and not one day in the middle of a topic.
"""

import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from gzip import GzipFile
from io import BytesIO
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from aiokafka.codec import _detect_xerial_stream as is_xerial
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy
from aiokafka.record.legacy_records import LegacyRecordBatch, _LegacyRecordBatchPy
from aiokafka.record.util import decode_varint_py as decode_varint
from cramjam import DecompressionError, lz4, snappy, zstd

MAX_UNPACKED_BYTES = 32 << 20
"""Of a batch. Clients fill one by its size before compression or by a guess of it after: 16 KiB (Java), 128 KiB (the
producers here), 1 MB (librdkafka). And a record has at most 1 MiB here. So this is far more than any means to send.

It is also what a batch costs in memory while it is read, and twice that while zstd unpacks it, which has a window."""
MAX_PARTS = 500_000
"""Of a batch: records and headers. The 2 bytes of an empty header take 72 in memory: a batch may unpack to little and
grow to gigabytes then. One that is not compressed has, in its 1 MiB, about as many at most."""
UNSUSPICIOUS_BYTES = 1 << 20
"""What has no more than this cannot have too many parts."""
SPARE = bytes(16)
"""Behind what was unpacked: the compiled reader takes up to 10 bytes for a number, there or not."""
XERIAL_HEADER_BYTES = 16
_CHUNK_BYTES = 64 << 10
_length = struct.Struct(">i")

Buffer = bytes | bytearray | memoryview
Unpack = Callable[[Buffer], memoryview]


class UnpackingError(ValueError):
    """A batch that is broken, or unpacks to more than the bound."""


def install() -> None:
    """From now on every batch of this process is unpacked with the bounds, by the library's compiled classes too."""
    for reader in (LegacyRecordBatch, _LegacyRecordBatchPy):
        vars(sys.modules[reader.__module__]).update(DECODERS)
    for reader in (DefaultRecordBatch, _DefaultRecordBatchPy):
        vars(sys.modules[reader.__module__]).update(
            {name: _of_few_parts(unpack) for name, unpack in DECODERS.items()}
        )


def gunzip(packed: Buffer) -> memoryview:
    """Of any number of members."""
    unpacked = bytearray()
    with GzipFile(fileobj=BytesIO(packed)) as source:
        for chunk in iter(partial(source.read, _CHUNK_BYTES), b""):
            unpacked += chunk
            _require_bound(len(unpacked))
    unpacked += SPARE
    return memoryview(unpacked)[: -len(SPARE)]


def unsnap(packed: Buffer) -> memoryview:
    """One raw block, or xerial's frame of many (Java). A block tells its size, and is broken if that is not true."""
    blocks = [*_xerial_blocks(memoryview(packed))] if is_xerial(packed) else [packed]
    size = sum(map(snappy.decompress_raw_len, blocks))
    _require_bound(size)
    unpacked = memoryview(bytearray(size + len(SPARE)))[:size]
    at = 0
    for block in blocks:
        at += snappy.decompress_raw_into(block, unpacked[at:])
    return unpacked


def _xerial_blocks(framed: memoryview) -> Iterator[memoryview]:
    at = XERIAL_HEADER_BYTES
    while at < len(framed):
        (size,) = _length.unpack_from(framed, at)
        start, at = at + _length.size, at + _length.size + size
        if not start <= at <= len(framed):
            raise UnpackingError(f"a block says that it has {size:,} bytes")
        yield framed[start:at]


def unlz4(packed: Buffer) -> memoryview:
    return _unpacked_into(lz4.decompress_into, packed)


def unzstd(packed: Buffer) -> memoryview:
    return _unpacked_into(zstd.decompress_into, packed)


def _unpacked_into(decompress: Callable[[Buffer, memoryview], int], packed: Buffer) -> memoryview:
    """Into room for the bound, of which only what is written to takes memory.

    Neither format has to tell its size, and what tells it may lie.
    """
    try:
        room = mmap(-1, MAX_UNPACKED_BYTES + len(SPARE), MAP_PRIVATE | MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no room to unpack a batch: {error}") from error
    unpacked = memoryview(room)[:MAX_UNPACKED_BYTES]
    try:
        return unpacked[: decompress(packed, unpacked)]
    except DecompressionError as error:
        raise UnpackingError(f"broken, or more than {MAX_UNPACKED_BYTES:,} bytes: {error}") from error


def _require_bound(size: int) -> None:
    if size > MAX_UNPACKED_BYTES:
        raise UnpackingError(f"more than {MAX_UNPACKED_BYTES:,} bytes")


DECODERS: dict[str, Unpack] = {
    "gzip_decode": gunzip,
    "snappy_decode": unsnap,
    "lz4_decode": unlz4,
    "zstd_decode": unzstd,
}
"""By the names that the library has for them."""


def _of_few_parts(unpack: Unpack) -> Unpack:
    """Headers are of format v2: the batches before it have none."""

    def unpack_batch(packed: Buffer) -> memoryview:
        unpacked = unpack(packed)
        if len(unpacked) > UNSUSPICIOUS_BYTES:
            _require_few_parts(unpacked)
        return unpacked

    return unpack_batch


def _require_few_parts(records: memoryview) -> None:
    at = parts = 0
    while at < len(records):
        try:
            at, headers = _skip_record(records, at)
        except (IndexError, ValueError) as error:
            raise UnpackingError(f"a broken record at byte {at:,}: {error}") from error
        parts += 1 + headers
        if parts > MAX_PARTS:
            raise UnpackingError(f"more than {MAX_PARTS:,} records and headers")


def _skip_record(records: memoryview, at: int) -> tuple[int, int]:
    """Where the next record begins, and how many headers this one says that it has."""
    length, start = decode_varint(records, at)
    at = start
    for _ in ("attributes", "timestamp", "offset"):
        _, at = decode_varint(records, at)
    for _ in ("key", "value"):
        size, at = decode_varint(records, at)
        at += max(size, 0)
    headers, at = decode_varint(records, at)
    if headers < 0 or at - start > length:
        raise ValueError("its lengths contradict each other")
    return start + length, headers
