"""The twin of the feed of dead runs."""

import asyncio
from collections.abc import AsyncIterator

from schemas.redis_keys import EndedRun


class InMemoryDeadRuns:
    """Says to everyone who follows what `announce` was told."""

    def __init__(self) -> None:
        self._followers: set[asyncio.Queue[EndedRun]] = set()

    def announce(self, *runs: EndedRun) -> None:
        """These runs are over."""
        for follower in self._followers:
            for run in runs:
                follower.put_nowait(run)

    async def follow(self) -> AsyncIterator[EndedRun]:
        heard: asyncio.Queue[EndedRun] = asyncio.Queue()
        self._followers.add(heard)
        try:
            while True:
                yield await heard.get()
        finally:
            self._followers.discard(heard)
