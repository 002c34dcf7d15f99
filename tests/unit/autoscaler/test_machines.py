"""Whoever owns machines is told what finds no room, and what has nothing to do."""

import threading
from collections.abc import Mapping
from itertools import pairwise

import pytest

from services.autoscaler import machines
from services.autoscaler.domain.control import Plan
from services.autoscaler.domain.hosts import Host, Room
from services.autoscaler.domain.layout import Layout, Placed, Unplaced
from services.autoscaler.machines import AGAIN_AT_MOST_S, AGAIN_S, EMPTY_FOR_S, SHORT_FOR_S, Hook, Machines
from tests.unit.chassis.test_aside import joined

SHORT = Layout({"h": {"llm": Placed(2)}}, (Unplaced("llm", 1, 1),))
FULL = Layout({"h": {"llm": Placed(2)}})


class Owner:
    """The hook of a test, and its clock."""

    def __init__(self, hook: Hook | None = None) -> None:
        self.now = 0.0
        self.fails = False
        self.told: list[tuple[float, Mapping[str, int], Mapping[str, Mapping[str, int]]]] = []
        self.machines = Machines(hook or self.scale, lambda: self.now)

    async def scale(self, unplaced: Mapping[str, int], hosts: Mapping[str, Mapping[str, int]]) -> None:
        self.told.append((self.now, unplaced, hosts))
        if self.fails:
            raise OSError("no quota")

    async def after(self, seconds: float, layout: Layout, *hosts: Host) -> None:
        """A look each second."""
        for _ in range(round(seconds)):
            self.now += 1
            self.machines.on_look(Plan({}, layout), hosts)
            await self.machines.tell()


def host(name: str, **running: int) -> Host:
    return Host(name, Room(cpu=1.0), 0, running=running)


async def test_what_finds_no_room_for_a_while_is_told_and_told_again() -> None:
    owner = Owner()
    await owner.after(SHORT_FOR_S, SHORT, host("h", llm=2))
    assert owner.told == []
    await owner.after(AGAIN_S + 1, SHORT, host("h", llm=2))
    assert [at for at, *_ in owner.told] == [SHORT_FOR_S + 1, SHORT_FOR_S + 1 + AGAIN_S]
    assert owner.told[0][1:] == ({"llm": 2}, {"h": {"llm": 2}})


async def test_what_finds_room_in_time_is_not_told() -> None:
    owner = Owner()
    for _ in range(5):
        await owner.after(SHORT_FOR_S - 1, SHORT, host("h", llm=2))
        await owner.after(1, FULL, host("h", llm=2))
    assert owner.told == []


async def test_a_host_that_stays_empty_is_told() -> None:
    owner = Owner()
    empty = Layout({"h": {"llm": Placed(2)}, "e": {}})
    await owner.after(EMPTY_FOR_S + 1, empty, host("h", llm=2), host("e"))
    assert [at for at, *_ in owner.told] == [EMPTY_FOR_S + 1]


async def test_one_that_still_drains_is_not_empty() -> None:
    owner = Owner()
    await owner.after(EMPTY_FOR_S + 1, Layout({"e": {}}), host("e", llm=1))
    assert owner.told == []


async def test_a_hook_that_fails_is_asked_later_each_time() -> None:
    owner = Owner()
    owner.fails = True
    await owner.after(400, SHORT, host("h", llm=2))
    times = [at for at, *_ in owner.told]
    assert [later - sooner for sooner, later in pairwise(times)] == [120, 240]


async def test_a_hook_that_fails_for_weeks_is_still_asked() -> None:
    owner = Owner()
    owner.fails = True
    owner.machines.on_look(Plan({}, SHORT), [])
    for _ in range(1_100):
        owner.now += AGAIN_AT_MOST_S
        await owner.machines.tell()
    assert len(owner.told) == 1_100


async def test_who_leads_no_more_tells_nothing() -> None:
    owner = Owner()
    await owner.after(SHORT_FOR_S, SHORT, host("h", llm=2))
    owner.machines.on_end()
    owner.now += 100
    await owner.machines.tell()
    assert owner.told == []


async def test_a_hook_that_blocks_holds_up_nobody_and_is_not_called_beside_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machines, "TIMEOUT_S", 0.01)
    go, calls = threading.Event(), list[Mapping[str, int]]()

    def blocks(unplaced: Mapping[str, int], _: Mapping[str, Mapping[str, int]]) -> None:
        calls.append(unplaced)
        go.wait()

    owner = Owner(blocks)
    await owner.after(SHORT_FOR_S + 1, SHORT, host("h", llm=2))
    await owner.after(2 * AGAIN_AT_MOST_S, SHORT, host("h", llm=2))
    assert calls == [{"llm": 2}]
    go.set()
    joined()
    await owner.after(1, SHORT, host("h", llm=2))
    assert calls == [{"llm": 2}] * 2
