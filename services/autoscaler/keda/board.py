"""What the policy has decided of each queue: told by whoever leads, read by whoever asks, now or at a change."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from services.autoscaler.domain.control import Plan
from services.autoscaler.domain.hosts import Host


class Board:
    """For one event loop. Without numbers until the first decision, and while this autoscaler does not lead."""

    def __init__(self) -> None:
        self._queues: frozenset[str] = frozenset()
        self._pods: Mapping[str, int] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def watch(self, queues: Iterable[str]) -> None:
        """Takes the labels of another configuration."""
        self._queues = frozenset(queues)

    def on_look(self, plan: Plan, hosts: Sequence[Host]) -> None:
        """A worker that sleeps has a pod as well."""
        self.tell({label: decided.replicas + decided.asleep for label, decided in plan.decisions.items()})

    def on_end(self) -> None:
        """What is decided from now on, another one says."""
        self.tell({})

    def tell(self, pods: Mapping[str, int]) -> None:
        """`pods`: how many are to be there, by queue label. Takes the place of what was told before."""
        if pods != self._pods:
            self._pods = dict(pods)
            self._wake()

    def close(self) -> None:
        """Nothing will be told any more: whoever waits need not."""
        self._closed = True
        self._wake()

    @property
    def is_closed(self) -> bool:
        """Whether it makes no sense to wait."""
        return self._closed

    @property
    def queues(self) -> frozenset[str]:
        """Labels of those that are configured; none while that is not known."""
        return self._queues

    def pods(self, queue: str) -> int | None:
        """How many are to be there; None when that is not known."""
        return self._pods.get(queue)

    @property
    def change(self) -> asyncio.Event:
        """Is set by the next change. Get it before you look, else you miss one."""
        return self._changed

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
