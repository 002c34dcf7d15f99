"""Children come from a process that has imported already; what befalls one of them, or it, is told."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import psutil
import pytest
import uvloop

from services.chassis.forks import client
from services.chassis.forks.client import Child, ForkServer
from services.chassis.forks.messages import Fork

CLOCK_TICK_S = 0.01
TROUBLED = "tests.unit.chassis.troubled_program"
PROGRAM = ("tests.unit.chassis.forked_program", "numpy", "no_such_library")


@pytest.fixture
async def forks() -> AsyncIterator[ForkServer]:
    async with ForkServer(PROGRAM, {**os.environ, "GIVEN": "from the start"}) as server:
        yield server


async def fork(server: ForkServer, *arguments: str, log: Path | None = None) -> Child:
    return await server.fork(
        Fork(title="a child", arguments=arguments, environment={"MORE": "for this one"}, log=log)
    )


def server_of(child: Child) -> psutil.Process:
    parent = psutil.Process(child.pid).parent()
    assert parent is not None
    return parent


async def ends(process: psutil.Process) -> None:
    """What is left of it may wait for a parent who takes its time."""
    async with asyncio.timeout(5):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0.01)


async def test_children_have_what_was_imported_and_nothing_else_of_their_parent(
    forks: ForkServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    first = await fork(forks, "describe", log=log)
    assert await first.wait() == 0
    second = await fork(forks, "describe", log=log)
    assert await second.wait() == 0
    assert log.read_text().splitlines() == ["False True 1 from the start for this one []"] * 2


@pytest.mark.parametrize(("arguments", "code"), [(("exit", "0"), 0), (("exit", "7"), 7), (("fail",), 1)])
async def test_how_each_ended_is_told(
    forks: ForkServer, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    child = await fork(forks, *arguments, log=tmp_path / "log")
    assert await child.wait() == code


async def test_many_end_at_once_and_each_has_its_own_code(forks: ForkServer) -> None:
    children = await asyncio.gather(*(fork(forks, "exit", str(code)) for code in range(20)))
    assert await asyncio.gather(*(child.wait() for child in children)) == list(range(20))


async def test_a_signal_reaches_the_child_and_none_that_has_ended(forks: ForkServer) -> None:
    child = await fork(forks, "wait")
    child.send(signal.SIGTERM)
    assert await child.wait() == -signal.SIGTERM
    child.send(signal.SIGKILL)
    assert await (await fork(forks, "exit", "0")).wait() == 0


async def test_the_interrupt_of_a_terminal_ends_children_not_their_parent(forks: ForkServer, tmp_path: Path) -> None:
    child = await fork(forks, "wait", log=tmp_path / "log")
    server_of(child).send_signal(signal.SIGINT)
    server_of(child).send_signal(signal.SIGTERM)
    child.send(signal.SIGINT)
    assert await child.wait() == -signal.SIGINT
    assert await (await fork(forks, "exit", "3")).wait() == 3


async def test_children_die_with_their_parent_which_is_replaced(forks: ForkServer) -> None:
    child = await fork(forks, "wait")
    process = psutil.Process(child.pid)
    server_of(child).kill()
    assert await child.wait() == -signal.SIGKILL
    await ends(process)
    assert await (await fork(forks, "exit", "5")).wait() == 5


async def test_one_that_never_answers_is_replaced(forks: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    child = await fork(forks, "wait")
    server_of(child).suspend()
    monkeypatch.setattr(client, "END_S", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(client, "FORK_S", 0.2)
        with pytest.raises(TimeoutError):
            await fork(forks, "wait")
    assert await child.wait() == -signal.SIGKILL
    assert await (await fork(forks, "exit", "5")).wait() == 5


async def test_nothing_is_left_at_the_end() -> None:
    async with ForkServer(PROGRAM, os.environ) as forks:
        child = await fork(forks, "wait")
        processes = [psutil.Process(child.pid), server_of(child)]
    assert await child.wait() == -signal.SIGKILL
    for process in processes:
        await ends(process)


async def test_a_module_that_is_not_there_is_an_error() -> None:
    async with ForkServer(["tests.unit.chassis.no_such_program"], os.environ) as forks:
        with pytest.raises(OSError, match="has ended"):
            await fork(forks, "wait")


@pytest.mark.parametrize("modules", [[PROGRAM[0], "tests.unit.chassis.broken_library"], [TROUBLED]])
async def test_what_befalls_the_imports_keeps_no_child_from_running(modules: list[str]) -> None:
    async with ForkServer(modules, {**os.environ, "GIVEN": ""}) as forks:
        assert await (await fork(forks, "exit", "3")).wait() == 3


@pytest.mark.parametrize("platform", ["linux", "darwin"])
async def test_a_child_is_as_old_as_itself_not_as_its_parent(
    forks: ForkServer, tmp_path: Path, platform: str
) -> None:
    began = time.monotonic()
    assert await (await fork(forks, "exit", "0")).wait() == 0
    forked = time.monotonic()
    assert await (await fork(forks, "age", platform, log=tmp_path / "log")).wait() == 0
    age_s = float((tmp_path / "log").read_text())
    assert 0.0 <= age_s <= time.monotonic() - forked + CLOCK_TICK_S
    assert forked - began > 2 * CLOCK_TICK_S, "its parent is older than that"


class Dying:
    """A process of which nobody knows yet that it has ended."""

    def __init__(self) -> None:
        self.is_known = asyncio.Event()

    async def wait(self) -> int:
        await self.is_known.wait()
        return -signal.SIGKILL


async def ask_one_that_is_just_ending() -> None:
    ours, theirs = socket.socketpair()
    process = Dying()
    reader, writer = await asyncio.open_connection(sock=ours)
    server = client._Server(cast("asyncio.subprocess.Process", process), reader, writer)
    theirs.close()
    await reader.read()
    await writer.wait_closed()
    order = Fork(title="a child", arguments=(), environment={}, log=None)
    asked = asyncio.create_task(server.fork(order))
    await asyncio.sleep(0)
    process.is_known.set()
    with pytest.raises(OSError, match="has ended"):
        await asked


def test_what_is_asked_of_one_that_is_just_ending_is_not_done() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask_one_that_is_just_ending())
