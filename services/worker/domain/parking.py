"""Tasks that another worker holds, waiting outside the slots until its lease ends."""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class Parking(Generic[T]):
    """By the moment each is worth asking for again. Its bound is the worker's: tasks it holds unfinished."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._heap)

    def park(self, task: T, until_s: float) -> None:
        """Leaves it here until then."""
        self._arrivals += 1
        heappush(self._heap, (until_s, self._arrivals, task))

    def peek(self, now_s: float) -> T | None:
        """The task that has waited out its lease the longest; None when none has."""
        return self._heap[0][2] if self._heap and self._heap[0][0] <= now_s else None

    def pop(self) -> T:
        """Takes out what `peek` shows."""
        return heappop(self._heap)[2]

    def due_in(self, now_s: float) -> float | None:
        """Seconds until the next one; None when it is empty."""
        return max(0.0, self._heap[0][0] - now_s) if self._heap else None

    def remove(self, tasks: set[T]) -> None:
        """Forgets these."""
        self._heap = [entry for entry in self._heap if entry[2] not in tasks]
        heapify(self._heap)
