"""The stream of the ingress topics, which are not the same for good: tenants may bring their own."""

import asyncio
from collections.abc import Callable

from services.chassis.kafka.stream import Stream

CHECK_S = 1.0

Topics = tuple[str, ...]


class IngressStream:
    """Runs the stream that `build` makes of the topics that are `wanted`, and another one when others are."""

    def __init__(self, wanted: Callable[[], Topics], build: Callable[[Topics], Stream]) -> None:
        self._wanted = wanted
        self._build = build
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._stream: Stream | None = None

    @property
    def progressing(self) -> bool:
        """For readiness."""
        return self._stream is not None and self._stream.progressing

    async def run(self) -> None:
        """Until stopped. Raises what a stream raises."""
        self._ended.clear()
        try:
            while not self._stopping.is_set():
                await self._consume(self._wanted())
        finally:
            self._stream = None
            self._ended.set()

    async def stop(self) -> None:
        """As a stream's."""
        self._stopping.set()
        if self._stream is not None:
            await self._stream.stop()
        await self._ended.wait()

    async def _consume(self, topics: Topics) -> None:
        """While these topics are wanted. The next stream starts when this one has committed and left the group."""
        self._stream = self._build(topics)
        running = asyncio.create_task(self._stream.run())
        try:
            while not running.done() and not self._stopping.is_set() and self._wanted() == topics:
                await asyncio.wait([running], timeout=CHECK_S)
            await self._stream.stop()
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
