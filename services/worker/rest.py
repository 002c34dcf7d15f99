"""Whether this process is to work or to sleep: its host says so, by signals that may come at any time and again."""

from collections.abc import Callable


class Rest:
    """One for each process; its queues listen."""

    def __init__(self, *, wanted: bool = False) -> None:
        self.wanted = wanted
        """Whether it is to sleep."""
        self._listeners: list[Callable[[], None]] = []

    def listen(self, on_change: Callable[[], None]) -> None:
        """Calls it whenever another state is wanted."""
        self._listeners.append(on_change)

    def begin(self) -> None:
        """It is to sleep."""
        self._want(rest=True)

    def end(self) -> None:
        """It is to work."""
        self._want(rest=False)

    def _want(self, *, rest: bool) -> None:
        if self.wanted is not rest:
            self.wanted = rest
            for on_change in self._listeners:
                on_change()
