"""Records that aiokafka 0.14 cannot decode, and how a consumer gets past them without losing one silently.

The broker stores what clients send without looking into it, and aiokafka raises at a header whose name is not UTF-8:
in the middle of a poll, whose records of other partitions have then been passed but are never returned, and again at
every further poll. What cannot be decoded is therefore yielded, in its place, as a record without key and value that
tells why in `x-unreadable`: its handler dead-letters it like anything undecodable, with its coordinates.

* A record that cannot be decoded: that record; the others of its batch are read.
* A batch that cannot be decompressed, or whose codec only later clients know: every offset of the batch.
* A checksum that is wrong: the batch is fetched once more, then its offsets are unreadable, one by one.
* A codec of today whose library is missing is no fault of a record but of the installation: an error, as before. So
  is a batch of a format that Kafka 4 does not store.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any

from aiokafka import TopicPartition as Target
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record.default_records import DefaultRecord, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import decode_varint_py as decode_varint
from aiokafka.structs import ConsumerRecord

from schemas.headers import X_UNREADABLE
from services.chassis.logging import log

BATCH_FORMAT = 2
_value = itemgetter(1)
_fetched_again: dict[Target, int] = {}
"""The base offset of the last batch of each partition that came with a wrong checksum."""


def install() -> None:
    """From now on every aiokafka consumer of this process survives unreadable records."""
    fetcher.MemoryRecords = Batches
    fetcher.PartitionRecords = ReadableRecords


class Batches(_MemoryRecordsPy):  # type: ignore[misc]  # aiokafka ships no types
    """The batches of a fetch; keeps the bytes of the one in hand, which the library's own hides."""

    raw = memoryview(b"")

    def next_batch(self) -> Any:
        self.raw = self._next_slice
        return super().next_batch()


class ReadableRecords(PartitionRecords):  # type: ignore[misc]  # aiokafka ships no types
    """One partition's records of a fetch. Header values are never None: to nobody here does that mean anything."""

    next_fetch_offset: int

    def _unpack_records(self) -> Iterator[ConsumerRecord]:
        while batch := (yield from self._until_unreadable()):
            if not batch.validate_crc():
                yield from self._pass_corrupt(batch)
                return
            yield from self._pass(batch)

    def _until_unreadable(self) -> Generator[ConsumerRecord, None, _DefaultRecordBatchPy | None]:
        """Returns the batch that the library cannot decode; None at the end."""
        try:
            yield from super()._unpack_records()
        except Exception as error:
            batch = _batch(self._records.raw)
            if batch is None:
                raise CorruptRecordException(f"{self._tp} offset {self.next_fetch_offset}: {error!r}") from error
            if _is_installation_fault(batch, error):
                raise
            return batch
        return None

    def _pass(self, batch: _DefaultRecordBatchPy) -> Iterator[ConsumerRecord]:
        """The rest of a batch in which something is unreadable."""
        for record, why in _salvage(batch):
            if record.offset >= self.next_fetch_offset:
                self.next_fetch_offset = record.offset + 1
                yield self._tell(record, why)
        self.next_fetch_offset = batch.next_offset

    def _pass_corrupt(self, batch: _DefaultRecordBatchPy) -> Iterator[ConsumerRecord]:
        """Nothing at first. Then one offset, for the header is not to be trusted: the broker knows what follows."""
        if _fetched_again.get(self._tp) != batch.base_offset:
            _fetched_again[self._tp] = batch.base_offset
            return
        unreadable = _unreadable(batch, self.next_fetch_offset, batch.max_timestamp, "the checksum is wrong")
        self.next_fetch_offset += 1
        yield self._tell(*unreadable)

    def _tell(self, record: DefaultRecord, why: str) -> ConsumerRecord:
        if why:
            where = {"topic": self._tp.topic, "partition": self._tp.partition, "offset": record.offset}
            log.warning("record_unreadable", why=why, **where)
        return self._consumer_record(self._tp, record)

    def _consumer_record(self, tp: Target, record: Any) -> ConsumerRecord:
        found = super()._consumer_record(tp, record)
        if None in map(_value, found.headers):
            return replace(found, headers=tuple((name, value or b"") for name, value in found.headers))
        return found


def _batch(raw: memoryview) -> _DefaultRecordBatchPy | None:
    """None for bytes that have not even a header of the format."""
    if len(raw) < _DefaultRecordBatchPy.HEADER_STRUCT.size:
        return None
    batch = _DefaultRecordBatchPy(raw)
    return batch if batch.magic == BATCH_FORMAT else None


def _is_installation_fault(batch: _DefaultRecordBatchPy, error: Exception) -> bool:
    return isinstance(error, UnsupportedCodecError) and batch.compression_type <= batch.CODEC_ZSTD


def _salvage(batch: _DefaultRecordBatchPy) -> Iterator[tuple[DefaultRecord, str]]:
    """Every record of a batch whose checksum is right, and why it is unreadable, if it is."""
    following = batch.base_offset
    try:
        batch._maybe_uncompress()
        for _ in range(batch._num_records):
            record, why = _read(batch)
            following = record.offset + 1
            yield record, why
    except Exception as error:
        why = _reason(error)
    else:
        return
    for offset in range(following, batch.next_offset):
        yield _unreadable(batch, offset, batch.max_timestamp, why)


def _read(batch: _DefaultRecordBatchPy) -> tuple[DefaultRecord, str]:
    """The next record. Raises when not even its length and its offset can be read.

    The compiled `decode_varint` reads beyond the end of its buffer: a broken length would end the process.
    """
    start = batch._pos
    try:
        return batch._read_msg(decode_varint), ""
    except Exception as error:
        length, body = decode_varint(batch._buffer, start)
        if not 0 < length <= len(batch._buffer) - body:
            raise
        _, at = decode_varint(batch._buffer, body)  # attributes
        since_first, at = decode_varint(batch._buffer, at)
        since_base, _ = decode_varint(batch._buffer, at)
        batch._pos = body + length
        timestamp = batch.max_timestamp if batch.timestamp_type else batch.first_timestamp + since_first
        return _unreadable(batch, batch.base_offset + since_base, timestamp, _reason(error))


def _reason(error: Exception) -> str:
    """Text is decoded for the names of headers alone."""
    return "a header's name is not UTF-8" if isinstance(error, UnicodeDecodeError) else repr(error)


def _unreadable(batch: _DefaultRecordBatchPy, offset: int, timestamp: int, why: str) -> tuple[DefaultRecord, str]:
    headers = [(X_UNREADABLE, why.encode(errors="replace"))]
    return DefaultRecord(offset, timestamp, batch.timestamp_type, None, None, headers), why
