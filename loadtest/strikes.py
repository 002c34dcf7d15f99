"""Processes killed (SIGKILL) while a plane grows, and how soon it has recovered from each."""

import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from loadtest.elastic import warm_ms
from loadtest.fleet import Said, decided, level, warm
from loadtest.nemesis.fault import now_ms
from loadtest.nemesis.parts import Parts, send
from schemas.fleet import Placement, WorkerStatus

WORKERS, HOST, LEADER = "half of the workers", "a host", "the autoscaler that leads"


class Struck(NamedTuple):
    """What was killed, and when."""

    target: str
    at_ms: int
    killed: int
    """Processes."""


def half_of_the_workers(parts: Parts) -> Struck:
    """Every second one, of all hosts and classes."""
    return _kill(WORKERS, parts.workers()[::2])


def a_host(parts: Parts) -> Struck:
    """The last one: its workers die with it."""
    return _kill(HOST, [parts.pid(parts.instances("host")[-1])])


def the_leader(parts: Parts, said: Sequence[Said]) -> Struck:
    """The autoscaler that placed last."""
    instance = next(status.instance for _, status in reversed(said) if isinstance(status, Placement))
    return _kill(LEADER, [parts.pid(_part_of(parts, instance))])


def _kill(target: str, pids: Sequence[int]) -> Struck:
    at_ms = now_ms()
    return Struck(target, at_ms, sum(send(pid, signal.SIGKILL) for pid in pids if pid))


def _part_of(parts: Parts, instance: str) -> str:
    """Which part it is, as its log tells."""
    logs: dict[str, Path] = {part: parts.home / "logs" / f"{part}.log" for part in parts.instances("autoscaler")}
    return next(part for part, log in logs.items() if instance in log.read_text(encoding="utf-8"))


def again_s(struck: Struck, said: Sequence[Said], partitions: Mapping[str, int]) -> Mapping[str, float | None]:
    """What came back, and after how many seconds; None: it never did. `partitions`: of each class's tasks.

    After workers were killed: `warm`, as many as were decided on then; `served`, somebody has each partition. After
    the leader was: `led`, a later one places.
    """
    if struck.target == LEADER:
        again_ms = {"led": _led_ms(struck, said)}
    else:
        again_ms = {"warm": _warm_ms(struck, said), "served": _served_ms(struck, said, partitions)}
    return {name: None if at_ms is None else (at_ms - struck.at_ms) / 1_000 for name, at_ms in again_ms.items()}


def _warm_ms(struck: Struck, said: Sequence[Said]) -> int | None:
    spans, latest_ms = warm(said), struck.at_ms
    for queue, levels in decided(said).items():
        again_ms = warm_ms(spans.get(queue, ()), level(levels, struck.at_ms), struck.at_ms)
        if again_ms is None:
            return None
        latest_ms = max(latest_ms, again_ms)
    return latest_ms


def _served_ms(struck: Struck, said: Iterable[Said], partitions: Mapping[str, int]) -> int | None:
    """When those that spoke later had all of them."""
    owned: defaultdict[str, dict[str, set[int]]] = defaultdict(dict)
    for at_ms, status in said:
        if at_ms <= struck.at_ms or not isinstance(status, WorkerStatus):
            continue
        owned[status.model_class][status.instance] = set(status.committed)
        if all(len(set().union(*owned[name].values())) == number for name, number in partitions.items()):
            return at_ms
    return None


def _led_ms(struck: Struck, said: Iterable[Said]) -> int | None:
    placed = [(at_ms, status.epoch) for at_ms, status in said if isinstance(status, Placement)]
    epoch = max((epoch for at_ms, epoch in placed if at_ms <= struck.at_ms), default=-1)
    return next((at_ms for at_ms, later in placed if at_ms > struck.at_ms and later > epoch), None)
