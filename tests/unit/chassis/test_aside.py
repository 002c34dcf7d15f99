"""What blocks blocks only itself."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from services.chassis import aside as module
from services.chassis.aside import NAME, Aside


class Hanging:
    """Work that hangs until it is let go."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self) -> str:
        self.began.release()
        self.go.wait()
        return "done"


def joined() -> None:
    """All such work has ended."""
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join()


async def test_it_returns_or_raises_what_the_work_does() -> None:
    aside = Aside()
    assert await aside.do(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        await aside.do(lambda: 1 / 0)


async def test_work_that_hangs_is_given_up_and_ends_unheard() -> None:
    aside, work = Aside(), Hanging()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await aside.do(work)
    assert aside.is_busy
    work.go.set()
    joined()
    assert not aside.is_busy


async def test_no_other_work_begins_before_it_has_ended() -> None:
    aside, first, order = Aside(), Hanging(), list[str]()

    def note(name: str) -> Callable[[], None]:
        return lambda: order.append(name)

    waiting = asyncio.create_task(aside.do(first))
    await asyncio.sleep(0)
    assert first.began.acquire(timeout=10)
    others = [asyncio.create_task(aside.do(note(name))) for name in ("second", "third")]
    await asyncio.sleep(0)
    assert order == []
    first.go.set()
    assert await waiting == "done"
    await asyncio.gather(*others)
    assert order == ["second", "third"]


async def test_work_for_which_there_is_no_thread_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(**_: object) -> None:
        raise RuntimeError("can't start new thread")

    aside = Aside()
    with monkeypatch.context() as patch:
        patch.setattr(module, "Thread", no_thread)
        with pytest.raises(RuntimeError):
            await aside.do(lambda: 1)
    assert not aside.is_busy
    assert await aside.do(lambda: 2) == 2
