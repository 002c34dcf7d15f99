"""Which host runs which workers: what is there stays, what is missing goes where there is room.

In this order: workers on dead hosts count for nothing; surplus ones fall asleep if sleepers are wanted, else they are
drained; sleepers are woken before anything is started, since that is quicker; what does not become ready where it is
goes to another host; new ones are spread over hosts, and of those that have as few go where the least room is left,
so that large models find a machine that is empty. A host that is leaving keeps its workers until as many are ready
elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from services.autoscaler.domain.hosts import Host, Need, Room
from services.autoscaler.domain.layout import Layout, Placed, Unplaced


def place(needs: Sequence[Need], hosts: Sequence[Host], before: Layout, now_ms: int) -> Layout:
    """The next layout. What needs come first is placed first, where not all of it finds room."""
    plan = _Plan(needs, [host for host in hosts if host.is_alive(now_ms)], before)
    for need in needs:
        plan.shrink(need)
    for need in needs:
        plan.wake(need)
    for need in needs:
        plan.move(need)
    for need in needs:
        plan.grow(need)
    return plan.layout()


class _Plan:
    """A layout in the making."""

    def __init__(self, needs: Sequence[Need], hosts: Sequence[Host], before: Layout) -> None:
        self._needs = {need.label: need for need in needs}
        self._hosts = {host.name: host for host in sorted(hosts)}
        self._staying = [host for host in self._hosts.values() if not host.leaving]
        self._warm: dict[str, Counter[str]] = {label: Counter() for label in self._needs}
        self._asleep: dict[str, Counter[str]] = {label: Counter() for label in self._needs}
        for host in self._staying:
            for label in self._needs:
                placed = before.at(host.name, label)
                self._warm[label][host.name] = placed.warm
                self._asleep[label][host.name] = placed.asleep
        self._before = before

    def shrink(self, need: Need) -> None:
        """Surplus workers fall asleep, where sleepers are missing, or go."""
        warm, asleep = self._warm[need.label], self._asleep[need.label]
        for _ in range(warm.total() - need.warm):
            host = self._least_used(need, warm)
            warm[host] -= 1
            asleep[host] += asleep.total() < need.asleep
        for _ in range(asleep.total() - need.asleep - max(0, need.warm - warm.total())):
            asleep[self._least_used(need, asleep)] -= 1

    def wake(self, need: Need) -> None:
        """Those that sleep where there is room to be awake; who cannot wake stays asleep as far as that is wanted."""
        warm, asleep = self._warm[need.label], self._asleep[need.label]
        for host in self._staying:
            while asleep[host.name] and warm.total() < need.warm and self._has_room(host, self._to_wake(need, host)):
                asleep[host.name] -= 1
                warm[host.name] += 1
        for _ in range(asleep.total() - need.asleep):
            asleep[self._least_used(need, asleep)] -= 1

    def move(self, need: Need) -> None:
        """What does not become ready where it is, and could elsewhere."""
        warm = self._warm[need.label]
        for host in [host for host in self._staying if need.label in host.failing]:
            for _ in range(warm[host.name] - host.ready.get(need.label, 0)):
                better = [other for other in self._fitting(need, need.takes) if need.label not in other.failing]
                if better:
                    warm[host.name] -= 1
                    warm[self._best(need, better, need.takes)] += 1

    def grow(self, need: Need) -> None:
        """New workers."""
        warm, asleep = self._warm[need.label], self._asleep[need.label]
        self._add(need, warm, need.warm, need.takes)
        self._add(need, asleep, need.asleep, lambda _: need.takes_asleep())

    def layout(self) -> Layout:
        """What has become of it."""
        hosts = {name: self._on(host) for name, host in self._hosts.items()}
        return Layout(hosts, tuple(self._unplaced()))

    def _add(self, need: Need, workers: Counter[str], wanted: int, takes: Callable[[Host], Room]) -> None:
        while workers.total() < wanted:
            fitting = self._fitting(need, takes)
            if not fitting:
                return
            workers[self._best(need, fitting, takes)] += 1

    def _fitting(self, need: Need, takes: Callable[[Host], Room]) -> list[Host]:
        return [host for host in self._staying if need.suits(host) and self._has_room(host, takes(host))]

    def _best(self, need: Need, hosts: Sequence[Host], takes: Callable[[Host], Room]) -> str:
        return min(hosts, key=lambda host: self._rank(need, host, takes(host))).name

    def _rank(self, need: Need, host: Host, takes: Room) -> tuple[bool, int, float, str]:
        """A host on which the queue's workers fail is the last resort."""
        count = self._warm[need.label][host.name] + self._asleep[need.label][host.name]
        return need.label in host.failing, count, _room_left(host, self._used(host).plus(takes)), host.name

    def _least_used(self, need: Need, workers: Counter[str]) -> str:
        """Where one goes first: where they fail or are not ready, then where the fewest are, so that hosts empty."""

        def rank(host: Host) -> tuple[bool, bool, int, str]:
            are_ready = host.ready.get(need.label, 0) >= self._warm[need.label][host.name]
            return need.label not in host.failing, are_ready, self._count(host), host.name

        return min((host for host in self._staying if workers[host.name]), key=rank).name

    def _count(self, host: Host) -> int:
        return sum(self._warm[label][host.name] + self._asleep[label][host.name] for label in self._needs)

    def _has_room(self, host: Host, takes: Room) -> bool:
        return host.room.holds(self._used(host).plus(takes))

    def _to_wake(self, need: Need, host: Host) -> Room:
        return need.takes(host).plus(need.takes_asleep(), -1)

    def _used(self, host: Host) -> Room:
        """Also by workers that still drain; of a queue that is no more nobody knows what its workers take."""
        used = Room()
        for label, need in self._needs.items():
            warm, asleep = self._warm[label][host.name], self._asleep[label][host.name]
            draining = max(0, host.running.get(label, 0) - warm - asleep)
            used = used.plus(need.takes(host), warm + draining).plus(need.takes_asleep(), asleep)
        return used

    def _on(self, host: Host) -> Mapping[str, Placed]:
        found = {label: self._placed(need, host) for label, need in self._needs.items()}
        return {label: placed for label, placed in found.items() if placed.total}

    def _placed(self, need: Need, host: Host) -> Placed:
        if not host.leaving:
            return Placed(self._warm[need.label][host.name], self._asleep[need.label][host.name])
        elsewhere = sum(each.ready.get(need.label, 0) for each in self._staying)
        return Placed(min(self._before.at(host.name, need.label).warm, max(0, need.warm - elsewhere)))

    def _unplaced(self) -> list[Unplaced]:
        short = [
            Unplaced(label, need.warm - self._warm[label].total(), need.asleep - self._asleep[label].total())
            for label, need in self._needs.items()
        ]
        return [each for each in short if each.warm or each.asleep]


def _room_left(host: Host, used: Room) -> float:
    """The mean of the shares of what the host has that are free."""
    pairs = [(had, taken) for had, taken in zip(host.room, used, strict=True) if had]
    return sum(1 - taken / had for had, taken in pairs) / len(pairs) if pairs else 0.0
