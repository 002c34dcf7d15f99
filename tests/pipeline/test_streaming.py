"""What a streaming engine says, from its call to the channel."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from schemas.text import TextPiece
from services.worker.domain.engine import Call, Outcome
from services.worker.text_stream import TextStream
from tests.pipeline.test_worker_wiring import EMBEDDING, LLM, Plane, RecordingEngine, Worker

FIRST_TOKENS = "headway_time_to_first_token_seconds_count"


class Channel:
    """Hears everything."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[TextPiece] = asyncio.Queue()

    async def publish(self, pieces: Sequence[TextPiece]) -> None:
        for piece in pieces:
            self.heard.put_nowait(piece)


def speaking(engine: RecordingEngine) -> Callable[[Sequence[Call]], object]:
    """The engine's `infer`, which says two pieces of each answer first."""
    answer = engine.infer

    async def infer(calls: Sequence[Call]) -> list[Outcome]:
        for call in calls:
            assert call.on_text is not None
            call.on_text("so")
            call.on_text(" it is")
        return await answer(calls)

    return infer


@asynccontextmanager
async def worker_that_streams(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    plane = Plane(LLM, EMBEDDING)
    text = TextStream(channel)
    running = asyncio.create_task(text.run())
    async with plane.worker(text=text) as worker:
        monkeypatch.setattr(worker.engines["llm"], "infer", speaking(worker.engines["llm"]))
        yield worker
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_text_is_published_of_steps_that_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel()
    async with worker_that_streams(channel, monkeypatch) as worker:
        private, public = worker.plane.task(1), worker.plane.task(2, stream=True, attempt=3)
        worker.plane.put(private)
        await worker.plane.event(private)
        worker.plane.put(public)
        await worker.plane.event(public)
        heard = await asyncio.wait_for(channel.heard.get(), 2)
    assert heard == TextPiece(run_id=public.run_id, step="answer", attempt=3, sequence=0, text="so it is")
    assert channel.heard.empty()


async def test_how_soon_the_first_piece_came_is_told_of_engines_that_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async with worker_that_streams(Channel(), monkeypatch) as worker:
        spoken, silent = worker.plane.task(1), worker.plane.task(2, "embedding")
        worker.plane.put(spoken, silent)
        await asyncio.gather(worker.plane.event(spoken), worker.plane.event(silent))
        metrics = worker.metrics.exposition().decode().splitlines()
    counted = [line for line in metrics if line.startswith(FIRST_TOKENS)]
    assert counted == [f'{FIRST_TOKENS}{{backend="local",model_class="llm"}} 1.0']
