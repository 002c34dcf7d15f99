"""Virtual time: what is to happen, and when. Hours pass in seconds, and twice the same way."""

import heapq
from collections.abc import Callable
from itertools import count

Happening = Callable[[], None]


class Calendar:
    """Seconds since the epoch of the simulation."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Happening]] = []
        self._numbers = count()

    def at(self, when_s: float, happening: Happening) -> None:
        """Of two at the same time the first one entered happens first."""
        heapq.heappush(self._due, (when_s, next(self._numbers), happening))

    def after(self, delay_s: float, happening: Happening) -> None:
        """From now."""
        self.at(self.now_s + delay_s, happening)

    def every(self, interval_s: float, happening: Happening) -> None:
        """From now on, again and again."""

        def again() -> None:
            happening()
            self.after(interval_s, again)

        self.after(0.0, again)

    def run(self, until_s: float) -> None:
        """Lets everything happen that is due by then."""
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, happening = heapq.heappop(self._due)
            happening()
        self.now_s = until_s
