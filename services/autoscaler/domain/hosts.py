"""Machines that can run workers, and what a worker takes from one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from schemas.models import Resources

DEAD_AFTER_MS = 10_000
"""Of silence, by the log's time."""
NOTHING: Mapping[str, int] = MappingProxyType({})


class Room(NamedTuple):
    """Of a machine, or what a worker takes of it. Memory is in bytes."""

    cpu: float = 0.0
    memory: int = 0
    gpu_memory: int = 0

    def plus(self, other: "Room", times: int = 1) -> "Room":
        """So many more of another."""
        return Room(
            self.cpu + times * other.cpu,
            self.memory + times * other.memory,
            self.gpu_memory + times * other.gpu_memory,
        )

    def holds(self, other: "Room") -> bool:
        """Whether it is enough, give or take what sums of fractions of a CPU lose."""
        return self.cpu + 1e-9 >= other.cpu and self.memory >= other.memory and self.gpu_memory >= other.gpu_memory


class Host(NamedTuple):
    """A machine, as it announces itself."""

    name: str
    room: Room
    heard_ms: int
    """Log time of its last status."""
    gpus: int = 0
    """That its GPU memory is made of, in equal parts."""
    labels: frozenset[str] = frozenset()
    running: Mapping[str, int] = NOTHING
    """Worker processes by queue label, those that drain included: they hold their room until they are gone."""
    ready: Mapping[str, int] = NOTHING
    asleep: Mapping[str, int] = NOTHING
    draining: Mapping[str, int] = NOTHING
    classes: frozenset[str] = frozenset()
    """Model classes that it may run; empty: all."""
    failing: frozenset[str] = frozenset()
    """Queues whose workers do not become ready there."""
    leaving: bool = False
    """It is to be given back: it gets nothing new."""

    def is_alive(self, now_ms: int) -> bool:
        """Whether it was heard in time."""
        return now_ms - self.heard_ms <= DEAD_AFTER_MS


class Need(NamedTuple):
    """What one queue is to have."""

    label: str
    warm: int
    asleep: int = 0
    resources: Resources = Resources()

    def takes(self, host: Host) -> Room:
        """One warm worker, of this host: without a figure for GPU memory it takes whole GPUs."""
        resources = self.resources
        whole = resources.gpu * host.room.gpu_memory // host.gpus if host.gpus else 0
        gpu_memory = whole if resources.gpu_memory is None else resources.gpu_memory
        return Room(resources.cpu, resources.memory, gpu_memory)

    def takes_asleep(self) -> Room:
        """One that sleeps: its model is in the machine's memory, and gives GPU and CPU to others."""
        return Room(memory=self.resources.memory)

    def suits(self, host: Host) -> bool:
        """Whether it could ever run there: class, labels, GPUs, and a GPU large enough for a model that is on one."""
        resources = self.resources
        if not host.labels.issuperset(resources.labels) or resources.gpu > host.gpus or not self._is_allowed(host):
            return False
        return resources.gpu_memory is None or (
            host.gpus > 0 and resources.gpu_memory <= host.room.gpu_memory // host.gpus
        )

    def _is_allowed(self, host: Host) -> bool:
        return not host.classes or self.label.partition(".")[0] in host.classes
