"""Text on its way to whoever listens: gathered, numbered, bounded, and lost rather than waited for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from schemas.text import TextPiece
from services.worker import text_stream
from services.worker.domain.ports import TextLost
from services.worker.text_stream import TextStream
from tests.unit.worker.test_reports import TASK


class Channel:
    """Takes what it is given, or loses it, whenever a test lets it."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[list[tuple[int, str]]] = asyncio.Queue()
        self.loses = False
        self.open = asyncio.Event()
        self.open.set()

    async def publish(self, pieces: Sequence[TextPiece]) -> None:
        self.batches.put_nowait([(piece.sequence, piece.text) for piece in pieces])
        await self.open.wait()
        if self.loses:
            raise TextLost

    async def next(self) -> list[tuple[int, str]]:
        return await asyncio.wait_for(self.batches.get(), 2)


@asynccontextmanager
async def running(channel: Channel) -> AsyncIterator[TextStream]:
    stream = TextStream(channel)
    task = asyncio.create_task(stream.run())
    try:
        yield stream
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_first_piece_goes_at_once_and_what_follows_goes_together() -> None:
    channel = Channel()
    async with running(channel) as stream:
        say, other = stream.begin(TASK), stream.begin(TASK)
        say("When")
        assert await channel.next() == [(0, "When")]
        say(" the")
        say(" function")
        other("Never")
        assert await channel.next() == [(1, " the function"), (0, "Never")]


async def test_however_fast_tokens_come_a_call_has_one_message_between_two_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests: asyncio.Queue[float] = asyncio.Queue()
    rested = asyncio.Event()

    async def rest(seconds: float) -> None:
        rests.put_nowait(seconds)
        await rested.wait()

    channel = Channel()
    async with running(channel) as stream:
        monkeypatch.setattr(asyncio, "sleep", rest)
        say = stream.begin(TASK)
        say("x")
        assert await channel.next() == [(0, "x")]
        assert await asyncio.wait_for(rests.get(), 2) == text_stream.EVERY_S == 1 / 20
        for _ in range(1_000):
            say("y")
        assert channel.batches.empty()
        rested.set()
        assert await channel.next() == [(1, "y" * 1_000)]


async def test_what_the_channel_loses_is_seen_by_the_numbers_and_costs_nothing_else() -> None:
    channel = Channel()
    channel.loses = True
    async with running(channel) as stream:
        say = stream.begin(TASK)
        say("lost")
        assert await channel.next() == [(0, "lost")]
        channel.loses = False
        say("heard")
        assert await channel.next() == [(1, "heard")]


async def test_while_the_channel_stands_still_no_more_than_the_bound_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_stream, "MAX_WAITING", 100)
    channel = Channel()
    channel.open.clear()
    async with running(channel) as stream:
        say, other = stream.begin(TASK), stream.begin(TASK)
        say("first")
        assert await channel.next() == [(0, "first")]
        for _ in range(1_000):
            say("ten chars!")
            other("ten chars!")
        channel.open.set()
        pieces = await channel.next()
    assert sum(len(text) for _, text in pieces) <= 100
    assert all(number > 100 for number, _ in pieces)


async def test_half_a_surrogate_pair_does_not_stop_its_neighbours() -> None:
    channel = Channel()
    async with running(channel) as stream:
        stream.begin(TASK)("\ud83d")
        stream.begin(TASK)("fine")
        assert await channel.next() == [(0, "?"), (0, "fine")]
