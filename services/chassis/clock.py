"""The log's time: what the broker's clock says now, inferred from the timestamps it stamps.

A record's timestamp was stamped before we see it, so `timestamp - monotonic now` is a lower bound of the true offset
between the broker's clock and ours, short by the record's travel time. Hence the *largest* bound is the best one: a
stale record (a re-read, a lagging partition, an out-of-order stamp of another broker) gives a smaller bound and
changes nothing, and the clock never runs ahead of the newest stamp but by the time that has passed since.

A maximum alone would keep an error for ever: after the broker's clock steps back, or while our monotonic clock runs
faster than the broker's. So it is taken over the last `WINDOW_S` (in two halves), not over all time. That is safe
because every service appends a status to the fleet topic every few seconds, and its acknowledgement is a fresh bound:
a window made only of stale ones, as in a long catch-up, does not happen. Running ahead is harmless meanwhile: a tick
stamped too early does nothing in the fold.
"""

import math
import time
from collections.abc import Callable

WINDOW_S = 300.0


class LogClock:
    """The broker's clock, in milliseconds since the epoch; unknown until a first timestamp was seen."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._half_began = monotonic()
        self._previous = -math.inf
        self._current = -math.inf

    def observe(self, timestamp_ms: int) -> None:
        """Learns from the broker's timestamp of a record just fetched, or just acknowledged."""
        now = self._monotonic()
        if now - self._half_began >= WINDOW_S / 2:
            self._half_began = now
            self._previous, self._current = self._current, -math.inf
        self._current = max(self._current, timestamp_ms - now * 1_000)

    def now_ms(self) -> int | None:
        """Milliseconds since the epoch as the broker counts them; None before the first observation.

        Steps back only when a window's best bound has expired, that is after the broker's clock itself has.
        """
        offset = max(self._previous, self._current)
        return None if offset == -math.inf else int(offset + self._monotonic() * 1_000)
