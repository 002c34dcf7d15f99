"""The loop: virtual time, processes that stop and go on, and an order that only the seed decides."""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from random import Random
from typing import Any

import pytest

from tests.simulation.loop import PROCESS, LivelockError, SimulatedLoop


def start(loop: SimulatedLoop, process: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    context = copy_context()
    context.run(PROCESS.set, process)
    return loop.create_task(work, context=context)


async def note(said: list[tuple[str, float]], every_s: float, times: int = 3) -> None:
    for _ in range(times):
        await asyncio.sleep(every_s)
        said.append((PROCESS.get(), asyncio.get_running_loop().time()))


def test_time_passes_when_nothing_can_run() -> None:
    loop = SimulatedLoop(Random(1))
    said: list[tuple[str, float]] = []
    loop.run_until_complete(note(said, 3_600.0))
    assert [at for _, at in said] == [3_600.0, 7_200.0, 10_800.0]


def test_a_stopped_process_goes_on_where_it_was_and_what_came_due_meanwhile_is_due_then() -> None:
    loop = SimulatedLoop(Random(1))
    said: list[tuple[str, float]] = []
    start(loop, "frozen", note(said, 1.0))
    start(loop, "other", note(said, 1.0))
    loop.call_later(1.5, lambda: loop.stop_process("frozen"))
    loop.call_later(10.0, lambda: loop.continue_process("frozen"))
    loop.run_until_complete(asyncio.sleep(20.0))
    assert [at for process, at in said if process == "frozen"] == [1.0, 10.0, 11.0]
    assert [at for process, at in said if process == "other"] == [1.0, 2.0, 3.0]


def test_a_killed_process_does_nothing_more_and_its_tasks_end_when_the_world_does() -> None:
    loop = SimulatedLoop(Random(1))
    said: list[tuple[str, float]] = []
    task = start(loop, "killed", note(said, 1.0))
    loop.call_later(1.5, lambda: loop.stop_process("killed"))
    loop.run_until_complete(asyncio.sleep(20.0))
    assert said == [("killed", 1.0)]
    loop.unwind()
    assert task.cancelled()
    assert said == [("killed", 1.0)]


def test_what_a_process_starts_is_its_own() -> None:
    loop = SimulatedLoop(Random(1))
    said: list[tuple[str, float]] = []

    async def parent() -> None:
        await asyncio.gather(note(said, 1.0), note(said, 1.0))

    start(loop, "family", parent())
    loop.call_later(1.5, lambda: loop.stop_process("family"))
    loop.run_until_complete(asyncio.sleep(20.0))
    assert said == [("family", 1.0)] * 2
    loop.unwind()


def test_among_processes_the_seed_decides_whose_turn_it_is_and_within_one_asyncio_does() -> None:
    def order(seed: int) -> list[str]:
        loop = SimulatedLoop(Random(seed))
        said: list[str] = []
        for name in ("a1", "b1", "c1", "a2", "b2", "c2"):
            context = copy_context()
            context.run(PROCESS.set, name[0])
            loop.call_soon(said.append, name, context=context)
        loop.run_until_complete(asyncio.sleep(1.0))
        return said

    orders = {tuple(order(seed)) for seed in range(20)}
    assert len(orders) > 3
    assert all(said.index(f"{process}1") < said.index(f"{process}2") for said in orders for process in "abc")
    assert order(7) == order(7)


def test_a_moment_that_never_ends_is_an_error() -> None:
    loop = SimulatedLoop(Random(1))

    def spin() -> None:
        loop.call_soon(spin)

    loop.call_soon(spin)
    with pytest.raises(LivelockError):
        loop.run_until_complete(asyncio.sleep(1.0))
