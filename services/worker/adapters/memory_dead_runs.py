"""The twin of the feed of dead runs."""

import asyncio
from collections.abc import AsyncIterator


class InMemoryDeadRuns:
    """Says to everyone who follows what `announce` was told."""

    def __init__(self) -> None:
        self._followers: set[asyncio.Queue[str]] = set()

    def announce(self, *run_ids: str) -> None:
        """These runs are over."""
        for follower in self._followers:
            for run_id in run_ids:
                follower.put_nowait(run_id)

    async def follow(self) -> AsyncIterator[str]:
        heard: asyncio.Queue[str] = asyncio.Queue()
        self._followers.add(heard)
        try:
            while True:
                yield await heard.get()
        finally:
            self._followers.discard(heard)
