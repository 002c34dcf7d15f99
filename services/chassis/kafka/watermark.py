"""How far a partition may be committed while its records finish out of order."""

from collections import OrderedDict


class Watermark:
    """One partition's records between delivery and the end of their work. Forget it with the assignment."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` bounds the span: what a crash would deliver again."""
        self._limit = limit
        self._unfinished: OrderedDict[int, int] = OrderedDict()
        """Offset → how many records were delivered before it. (Taking from the front of a plain dict is slow.)"""
        self._delivered = 0
        self._next: int | None = None

    def delivered(self, offset: int) -> None:
        """A record was handed out. Offsets rise, but not always by one: compaction and transactions leave gaps."""
        if self._next is not None and offset < self._next:
            raise ValueError(f"offset {offset} after {self._next - 1}: a new position needs a new watermark")
        self._unfinished[offset] = self._delivered
        self._delivered += 1
        self._next = offset + 1

    def done(self, offset: int) -> None:
        """Its work is finished; in any order, and a repeat does nothing."""
        self._unfinished.pop(offset, None)

    def committable(self) -> int | None:
        """The offset to commit: the first unfinished record, else the one after the last; None before any record."""
        oldest = self.oldest_unfinished
        return self._next if oldest is None else oldest

    @property
    def oldest_unfinished(self) -> int | None:
        """The offset that holds the commit back."""
        return next(iter(self._unfinished), None)

    @property
    def unfinished(self) -> int:
        """How many records are being worked on."""
        return len(self._unfinished)

    @property
    def span(self) -> int:
        """How many delivered records the commit has not passed, finished ones behind an unfinished one included."""
        oldest = self.oldest_unfinished
        return 0 if oldest is None else self._delivered - self._unfinished[oldest]

    @property
    def room(self) -> int | None:
        """How many more records may be delivered before the span is full; None without a limit."""
        return None if self._limit is None else max(0, self._limit - self.span)
