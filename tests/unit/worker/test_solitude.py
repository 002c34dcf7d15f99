"""Who runs beside whom on one worker process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from services.worker import solitude as module
from services.worker.solitude import Solitude


class Process:
    """A worker process, and what runs in it."""

    def __init__(self) -> None:
        self.solitude = Solitude()
        self.alone: list[str] = []
        self.go = asyncio.Event()

    @asynccontextmanager
    async def suspect(self, name: str, timeout_s: float = 60.0) -> AsyncIterator[asyncio.Task[None]]:
        """One that stays alone until it is let go."""

        async def run() -> None:
            async with self.solitude.alone(timeout_s):
                self.alone.append(name)
                await self.go.wait()

        task = asyncio.create_task(run())
        await settled()
        yield task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settled() -> None:
    """Everything that can go on without time has gone on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_suspect_is_alone_at_once_where_nothing_runs() -> None:
    process = Process()
    async with process.suspect("s"):
        assert process.alone == ["s"]
        assert process.solitude.closed
        with pytest.raises(AssertionError):
            process.solitude.enter()
    assert not process.solitude.closed


async def test_a_suspect_waits_for_what_runs_and_nothing_begins_meanwhile() -> None:
    process = Process()
    process.solitude.enter()
    process.solitude.enter()
    async with process.suspect("s"):
        assert process.solitude.closed
        process.solitude.leave()
        await settled()
        assert process.alone == []
        process.solitude.leave()
        await settled()
        assert process.alone == ["s"]


async def test_suspects_are_alone_one_after_another() -> None:
    process = Process()
    async with process.suspect("first"), process.suspect("second") as second:
        assert process.alone == ["first"]
        process.go.set()
        await second
        assert process.alone == ["first", "second"]
    assert not process.solitude.closed


async def test_a_wait_that_takes_too_long_is_given_up_and_opens_the_door() -> None:
    process, opened = Process(), asyncio.Event()
    process.solitude.listen(opened.set)
    process.solitude.enter()
    async with process.suspect("s", timeout_s=0.01) as task:
        with pytest.raises(TimeoutError):
            await task
    assert opened.is_set()
    assert not process.solitude.closed
    process.solitude.leave()
    assert not process.solitude.closed


async def test_a_suspect_that_is_stopped_leaves_the_process_to_the_others() -> None:
    process = Process()
    async with process.suspect("first") as first, process.suspect("second"):
        first.cancel()
        await settled()
        assert process.alone == ["first", "second"]
    assert not process.solitude.closed


async def test_a_suspect_stopped_at_the_moment_of_its_turn_leaves_it_to_the_next() -> None:
    process = Process()
    process.solitude.enter()
    async with process.suspect("first") as first, process.suspect("second"):
        process.solitude.leave()
        first.cancel()
        await settled()
        assert process.alone == ["second"]


async def until(true: Callable[[], bool]) -> None:
    """Timers have no event to wait for."""
    async with asyncio.timeout(1):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_after_a_long_turn_of_suspects_the_others_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_S", 0.0)
    monkeypatch.setattr(module, "REST_S", 0.02)
    process, opened = Process(), asyncio.Event()
    process.solitude.listen(opened.set)
    async with process.suspect("first") as first, process.suspect("second"):
        await settled()
        assert process.solitude.closed
        first.cancel()
        await asyncio.wait_for(opened.wait(), 1)
        process.solitude.enter()
        assert process.alone == ["first"]
        process.solitude.leave()
        await until(lambda: process.alone == ["first", "second"])
        assert process.solitude.closed


async def test_beside_a_long_call_a_suspect_and_the_others_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_S", 0.01)
    monkeypatch.setattr(module, "REST_S", 0.01)
    process, openings = Process(), list[bool]()
    process.solitude.listen(lambda: openings.append(process.solitude.closed))
    process.solitude.enter()
    async with process.suspect("s"):
        assert process.solitude.closed
        await until(lambda: len(openings) == 2)
        assert openings == [False, False]
        assert process.alone == []
        await until(lambda: process.solitude.closed)
        process.solitude.leave()
        await settled()
        assert process.alone == ["s"]
    assert not process.solitude.closed


async def test_the_turn_of_a_suspect_that_gave_up_is_not_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_S", 0.02)
    process = Process()
    process.solitude.enter()
    async with process.suspect("first"):
        pass
    monkeypatch.setattr(module, "TURN_S", 60.0)
    async with process.suspect("second"):
        await asyncio.sleep(0.04)  # past the first one's
        assert process.solitude.closed


async def test_short_turns_follow_each_other_without_a_rest() -> None:
    process = Process()
    async with process.suspect("first") as first, process.suspect("second"):
        first.cancel()
        await settled()
        assert process.alone == ["first", "second"]
