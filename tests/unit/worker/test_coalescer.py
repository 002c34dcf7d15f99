import asyncio
from collections.abc import Sequence

import pytest

from services.worker.coalescer import Coalescer


class Slow:
    """Doubles numbers when it is let go; remembers how they came."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, items: Sequence[int]) -> Sequence[int]:
        self.calls.append(list(items))
        await self.gate.wait()
        if self.error:
            raise self.error
        return [2 * item for item in items]


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_alone_a_caller_waits_for_nobody() -> None:
    slow = Slow()
    slow.gate.set()
    assert await Coalescer(slow)([1, 2]) == [2, 4]
    assert slow.calls == [[1, 2]]


async def test_what_is_asked_meanwhile_travels_together() -> None:
    slow = Slow()
    ask = Coalescer(slow)
    answers = [asyncio.create_task(ask(items)) for items in ([1], [2, 3], [], [4])]
    await turn()
    assert slow.calls == [[1]]
    slow.gate.set()
    assert await asyncio.gather(*answers) == [[2], [4, 6], [], [8]]
    assert slow.calls == [[1], [2, 3, 4]]


async def test_a_failed_call_fails_its_callers_only() -> None:
    slow = Slow()
    ask = Coalescer(slow)
    first, second = asyncio.create_task(ask([1])), asyncio.create_task(ask([2]))
    await turn()
    slow.error = ConnectionError()
    slow.gate.set()
    for failed in (first, second):
        with pytest.raises(ConnectionError):
            await failed
    slow.error = None
    assert await ask([3]) == [6]


async def test_a_caller_that_gives_up_holds_up_nobody() -> None:
    slow = Slow()
    ask = Coalescer(slow)
    first, second, third = (asyncio.create_task(ask([n])) for n in (1, 2, 3))
    await turn()
    first.cancel()
    second.cancel()
    await turn()
    slow.gate.set()
    assert await third == [6]
    assert await ask([4]) == [8]
    await asyncio.gather(first, second, return_exceptions=True)


async def test_where_nobody_is_in_a_hurry_the_first_waits_for_company() -> None:
    slow = Slow()
    slow.gate.set()
    ask = Coalescer(slow, linger_s=0.01)
    assert list(await asyncio.gather(*(ask([n]) for n in (1, 2, 3)))) == [[2], [4], [6]]
    assert await ask([4]) == [8]
    assert slow.calls == [[1, 2, 3], [4]]
