"""Machines of a simulation: what the autoscaler hears of them, and how they follow its layout."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from loadtest.virtual.pool import Pool
from loadtest.virtual.replica import Replica
from services.autoscaler.domain.hosts import Host, Room
from services.autoscaler.domain.layout import Layout, Placed

LIVE = ("starting", "warm")


class Machines:
    """All of them; a machine in `silent` has died, and its workers with it."""

    def __init__(self, names: Sequence[str], room: Room, pools: Mapping[str, Pool]) -> None:
        self._names = names
        self._room = room
        self._pools = pools
        self._silent: dict[str, int] = {}
        self._followed: Layout | None = None

    def fail(self, name: str, now_ms: int) -> None:
        """A machine dies."""
        self._silent[name] = now_ms
        self._followed = None
        for pool in self._pools.values():
            for replica in [replica for replica in pool.replicas if replica.host == name]:
                pool.lose(replica)

    def announced(self, now_ms: int) -> list[Host]:
        """As the fleet topic tells it."""
        running: dict[str, Counter[str]] = {name: Counter() for name in self._names}
        ready: dict[str, Counter[str]] = {name: Counter() for name in self._names}
        for label, pool in self._pools.items():
            for replica in pool.replicas:
                running[replica.host][label] += 1
                ready[replica.host][label] += replica.state == "warm"
        return [
            Host(name, self._room, self._silent.get(name, now_ms), running=running[name], ready=ready[name])
            for name in self._names
        ]

    def follow(self, layout: Layout) -> None:
        """What each host does with its placement; nothing, where it is the one before."""
        if layout == self._followed:
            return
        self._followed = layout
        for name, placed in layout.hosts.items():
            if name not in self._silent:
                for label, pool in self._pools.items():
                    _follow(pool, name, placed.get(label, Placed()))


def _follow(pool: Pool, host: str, placed: Placed) -> None:
    here = [replica for replica in pool.replicas if replica.host == host]
    live = [replica for replica in here if replica.state in LIVE and not replica.sleeps_next]
    asleep = [replica for replica in here if replica.state == "asleep" or replica.sleeps_next]
    for _ in range(placed.warm - len(live)):
        _one_more(pool, host, asleep)
    surplus = sorted(live, key=_worth)[: max(0, len(live) - placed.warm)]
    for replica in surplus:
        falls_asleep = len(asleep) < placed.asleep
        pool.retire(replica, sleeps_next=falls_asleep)
        asleep += [replica] if falls_asleep else []
    for _ in range(placed.asleep - len(asleep)):
        pool.start(host, sleeps_next=True)
    for replica in _sleeping(asleep)[: max(0, len(asleep) - placed.asleep)]:
        pool.retire(replica)


def _one_more(pool: Pool, host: str, asleep: list[Replica]) -> None:
    """Woken if one sleeps, else started."""
    sleeping = _sleeping(asleep)
    if sleeping:
        asleep.remove(sleeping[0])
        pool.wake(sleeping[0])
    else:
        pool.start(host)


def _sleeping(replicas: Collection[Replica]) -> list[Replica]:
    return [replica for replica in replicas if replica.state == "asleep"]


def _worth(replica: Replica) -> tuple[bool, int]:
    """The first to go: those that only start, then those with the least in flight."""
    return replica.state == "warm", replica.busy
