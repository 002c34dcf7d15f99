"""Records that aiokafka 0.14 cannot decode, and how a consumer gets past them without losing one silently.

The broker stores what clients send without looking into it, and aiokafka raises at a header whose name is not UTF-8:
in the middle of a poll, whose records of other partitions have then been passed but are never returned, and again at
every further poll. What cannot be decoded is therefore yielded, in its place, as a record without key and value that
tells why in `x-unreadable`: its handler dead-letters it like anything undecodable, with its coordinates.

* A record that cannot be decoded: that record; the others of its batch are read.
* A batch that cannot be unpacked, or to more than is reasonable, or whose codec only later clients know: every offset
  of the batch. So is, to the end of its batch, what follows a record that hides where the next one begins, and a
  record that tells an offset that cannot be its own.
* More offsets than a batch may sensibly have, as a header that lies says: one record, which stands for all of them.
* A checksum that is wrong: the batch is fetched once more, then its offsets are unreadable, one by one.
* A batch of the formats v0 and v1, which Kafka 4 stores no more but may have kept from before, is read. If it cannot
  be, like bytes that are no batch at all, one offset after the other is unreadable: the broker knows what follows.
* No memory left is no fault of a record: an error. So is a codec whose library is missing, but that one already when
  the process starts.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any, NoReturn

from aiokafka import TopicPartition as Target
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import decode_varint_py as decode_varint
from aiokafka.structs import ConsumerRecord

from schemas.headers import X_UNREADABLE
from services.chassis.kafka import decompression
from services.chassis.logging import log

BATCH_FORMAT = 2
NO_TIMESTAMP = -1
CREATE_TIME = 0
MAX_UNREADABLE = 150_000
"""Of one batch, and so dead letters: as many as there are records, of 7 bytes at least, in one of 1 MiB."""
_BASE_OFFSET = slice(0, 8)
"""In a batch of any format."""
_value = itemgetter(1)
_fetched_again: dict[Target, int] = {}
"""The base offset of the last batch of each partition that came with a wrong checksum."""


def install() -> None:
    """From now on every aiokafka consumer of this process survives unreadable records."""
    fetcher.MemoryRecords = Batches
    fetcher.PartitionRecords = ReadableRecords
    decompression.install()


class Batches(_MemoryRecordsPy):  # type: ignore[misc]  # aiokafka ships no types
    """The batches of a fetch; keeps the bytes of the one in hand, which the library's own hides."""

    raw = memoryview(b"")

    def next_batch(self) -> Any:
        self.raw = self._next_slice
        batch = super().next_batch()
        return OrderedBatch(batch) if isinstance(batch, DefaultRecordBatch) else batch


class OrderedBatch:
    """A batch whose records have the offsets that the broker gave them.

    Each record tells its own, and of a batch that is not compressed the broker does not look whether it is true. One
    in the future would be committed, and one in the past be passed silently.
    """

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        following, end = self._batch.base_offset, self._batch.next_offset
        for record in self._batch:
            offset = record.offset
            if not following <= offset < end:
                _refuse_offset(offset)
            following = offset + 1
            yield record


class ReadableRecords(PartitionRecords):  # type: ignore[misc]  # aiokafka ships no types
    """One partition's records of a fetch. Header values (and, in format v0, timestamps) are never None: to nobody
    here does that mean anything."""

    next_fetch_offset: int

    def _unpack_records(self) -> Iterator[ConsumerRecord]:
        while why := (yield from self._until_unreadable()):
            batch = _batch(self._records.raw)
            if batch is None or not batch.validate_crc():
                yield from self._pass_blindly(batch, why)
                return
            yield from self._pass(batch)

    def _until_unreadable(self) -> Generator[ConsumerRecord, None, str]:
        """Returns why the library cannot decode the batch in hand; nothing at the end.

        In words, for an error would keep what was unpacked.
        """
        try:
            yield from super()._unpack_records()
        except MemoryError:
            raise
        except Exception as error:
            return _reason(error)
        return ""

    def _pass(self, batch: _DefaultRecordBatchPy) -> Iterator[ConsumerRecord]:
        """The rest of a batch in which something is unreadable."""
        for record, why in _salvage(batch):
            if record.offset >= self.next_fetch_offset:
                self.next_fetch_offset = record.offset + 1
                yield self._tell(record, why)
        self.next_fetch_offset = max(self.next_fetch_offset, batch.next_offset)

    def _pass_blindly(self, batch: _DefaultRecordBatchPy | None, why: str) -> Iterator[ConsumerRecord]:
        """Nothing at first. Then one offset, for the bytes are not to be trusted: the broker knows what follows."""
        base = int.from_bytes(self._records.raw[_BASE_OFFSET])
        if _fetched_again.get(self._tp) != base:
            _fetched_again[self._tp] = base
            return
        timestamp, why = (batch.max_timestamp, "the checksum is wrong") if batch else (NO_TIMESTAMP, why)
        record = _unreadable(self.next_fetch_offset, timestamp, why)
        self.next_fetch_offset += 1
        yield self._tell(record, why)

    def _tell(self, record: DefaultRecord, why: str) -> ConsumerRecord:
        if why:
            where = {"topic": self._tp.topic, "partition": self._tp.partition, "offset": record.offset}
            log.warning("record_unreadable", why=why, **where)
        return self._consumer_record(self._tp, record)

    def _consumer_record(self, tp: Target, record: Any) -> ConsumerRecord:
        found = super()._consumer_record(tp, record)
        if found.timestamp is None or None in map(_value, found.headers):
            return _completed(found)
        return found


def _completed(record: ConsumerRecord) -> ConsumerRecord:
    timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
    return replace(record, timestamp=timestamp, headers=tuple((name, value or b"") for name, value in record.headers))


def _batch(raw: memoryview) -> _DefaultRecordBatchPy | None:
    """None for bytes that have not even a header of the format."""
    if len(raw) < _DefaultRecordBatchPy.HEADER_STRUCT.size:
        return None
    batch = _DefaultRecordBatchPy(raw)
    return batch if batch.magic == BATCH_FORMAT else None


def _salvage(batch: _DefaultRecordBatchPy) -> Iterator[tuple[DefaultRecord, str]]:
    """Every record of a batch whose checksum is right, and why it is unreadable, if it is."""
    following = batch.base_offset
    try:
        batch._maybe_uncompress()
        for _ in range(batch._num_records):
            record, why = _read(batch)
            if not following <= record.offset < batch.next_offset:
                _refuse_offset(record.offset)
            following = record.offset + 1
            yield record, why
        _require_end(batch)
    except MemoryError:
        raise
    except Exception as error:
        why = _reason(error)
    else:
        return
    yield from _all_unreadable(range(following, batch.next_offset), batch.max_timestamp, why)


def _refuse_offset(offset: int) -> NoReturn:
    raise CorruptRecordException(f"a record says that its offset is {offset}")


def _require_end(batch: _DefaultRecordBatchPy) -> None:
    if left := len(batch._buffer) - batch._pos:
        raise CorruptRecordException(f"{left:,} bytes follow the last record")


def _all_unreadable(offsets: range, timestamp: int, why: str) -> Iterator[tuple[DefaultRecord, str]]:
    if len(offsets) > MAX_UNREADABLE:
        why = f"{len(offsets):,} offsets from here on: {why}"
        offsets = offsets[:1]
    for offset in offsets:
        yield _unreadable(offset, timestamp, why), why


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
        why = _reason(error)
        return _unreadable(batch.base_offset + since_base, timestamp, why), why


def _reason(error: Exception) -> str:
    """Text is decoded for the names of headers alone."""
    return "a header's name is not UTF-8" if isinstance(error, UnicodeDecodeError) else repr(error)


def _unreadable(offset: int, timestamp: int, why: str) -> DefaultRecord:
    headers = [(X_UNREADABLE, why.encode(errors="replace"))]
    return DefaultRecord(offset, timestamp, CREATE_TIME, None, None, headers)
