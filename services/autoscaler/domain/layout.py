"""Which host has which workers: what placement is decided from, and what it decides."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from services.autoscaler.domain.hosts import Host


class Placed(NamedTuple):
    """Workers of one queue on one host."""

    warm: int = 0
    asleep: int = 0

    @property
    def total(self) -> int:
        return self.warm + self.asleep


NONE = Placed()


class Unplaced(NamedTuple):
    """Workers of a queue that no host has room for: a reason to add a machine."""

    label: str
    warm: int
    asleep: int


class Layout(NamedTuple):
    """All hosts."""

    hosts: Mapping[str, Mapping[str, Placed]] = MappingProxyType({})
    """By host, by queue label; nothing is listed that has no worker."""
    unplaced: tuple[Unplaced, ...] = ()

    def at(self, host: str, label: str) -> Placed:
        """The workers of a queue on a host."""
        return self.hosts.get(host, {}).get(label, NONE)

    def of(self, label: str) -> Iterator[Placed]:
        """The workers of a queue, host by host."""
        return (placed[label] for placed in self.hosts.values() if label in placed)

    def total(self, label: str) -> Placed:
        """All workers of a queue."""
        found = list(self.of(label))
        return Placed(sum(each.warm for each in found), sum(each.asleep for each in found))


def as_running(hosts: Iterable[Host]) -> Layout:
    """What hosts that were not placed on yet begin with: everything stays as it is. What drains is going."""
    return Layout({host.name: {label: _running(host, label) for label in host.running} for host in hosts})


def _running(host: Host, label: str) -> Placed:
    asleep, draining = host.asleep.get(label, 0), host.draining.get(label, 0)
    return Placed(max(0, host.running[label] - asleep - draining), asleep)
