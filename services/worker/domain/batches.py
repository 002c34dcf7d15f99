"""Micro-batches: several tasks in one engine call."""

from typing import Generic, TypeVar

T = TypeVar("T")


class MicroBatcher(Generic[T]):
    """Collects tasks until a call is worth it: full, or the first has waited long enough, or the engine is idle.

    An idle engine is never left waiting for company: what arrives while it works is the next batch.
    """

    def __init__(self, max_size: int, max_wait_s: float) -> None:
        self._max_size = max_size
        self._max_wait_s = max_wait_s
        self._waiting: list[T] = []
        self._first_at = 0.0

    def add(self, task: T, now_s: float) -> None:
        """One more; `next` says whether it is time."""
        if not self._waiting:
            self._first_at = now_s
        self._waiting.append(task)

    def next(self, now_s: float, *, idle: bool) -> list[T]:
        """The batch to start now; empty when there is none yet."""
        if not (idle or len(self._waiting) >= self._max_size or now_s >= self._first_at + self._max_wait_s):
            return []
        batch, self._waiting = self._waiting[: self._max_size], self._waiting[self._max_size :]
        return batch

    def due_in(self, now_s: float) -> float | None:
        """Seconds until what waits must start; None when nothing waits."""
        return max(0.0, self._first_at + self._max_wait_s - now_s) if self._waiting else None

    def clear(self) -> list[T]:
        """Everything that waits, given up."""
        given_up, self._waiting = self._waiting, []
        return given_up
