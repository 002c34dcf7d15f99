"""What the policy has decided of each queue: told by the autoscaler, read by whoever asks, now or at a change."""

import asyncio
from collections.abc import Collection, Mapping
from types import MappingProxyType

Pods = Mapping[str, int | None]
"""Workers that are to be there, warm or asleep, by queue label; None for a queue of which nothing is decided yet."""

NOTHING: Pods = MappingProxyType({})


class Board:
    """For one event loop. Empty until the first decision, and again once this autoscaler does not lead any more."""

    def __init__(self) -> None:
        self._pods = NOTHING
        self._changed = asyncio.Event()
        self._closed = False

    def tell(self, pods: Pods) -> None:
        """Takes the place of what was told before. `pods`: every queue that is configured."""
        if pods != self._pods:
            self._pods = dict(pods)
            self._wake()

    def retract(self) -> None:
        """Nothing is known any more: what was decided is another's to say."""
        self.tell(NOTHING)

    def close(self) -> None:
        """Nothing will be told any more: whoever waits need not."""
        self._closed = True
        self._wake()

    @property
    def is_closed(self) -> bool:
        """Whether it makes sense to wait."""
        return self._closed

    @property
    def queues(self) -> Collection[str]:
        """Labels of those that are configured; none as long as nothing is known."""
        return self._pods.keys()

    def pods(self, queue: str) -> int | None:
        """How many workers are to be there; None when that is not known."""
        return self._pods.get(queue)

    @property
    def change(self) -> asyncio.Event:
        """Is set by the next change. Get it before you look, else you miss one."""
        return self._changed

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
