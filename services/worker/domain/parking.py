"""Tasks that another worker holds, waiting outside the slots until its lease ends."""

from heapq import heappop, heappush
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

    @property
    def first(self) -> T | None:
        """The one that is due first; None when it is empty."""
        return self._heap[0][2] if self._heap else None

    def peek(self, now_s: float) -> T | None:
        """The task that has waited out its lease the longest; None when none has."""
        return self._heap[0][2] if self._heap and self._heap[0][0] <= now_s else None

    def pop(self) -> T:
        """Takes out what `peek` shows."""
        return heappop(self._heap)[2]

    def due_in(self, now_s: float) -> float | None:
        """Seconds until the next one; None when it is empty."""
        return max(0.0, self._heap[0][0] - now_s) if self._heap else None

    def clear(self) -> list[T]:
        """Everyone, given up."""
        given_up, self._heap = [task for _, _, task in self._heap], []
        return given_up
