"""`submit --stream`: what the run says while one waits for its response."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headway.cli.output import say
from headway.cli.transcript import Transcript
from headway.text import TextPiece, pieces_of, run_id
from schemas.config import DEFAULT_TENANT


@asynccontextmanager
async def listening(redis_url: str, request_id: str) -> AsyncIterator[None]:
    """Prints on stderr, while the block runs, what the request's run says: stdout is for its response."""
    async with pieces_of(redis_url, run_id(DEFAULT_TENANT, request_id)) as pieces:
        printing = asyncio.create_task(_print(pieces))
        try:
            yield
        finally:
            printing.cancel()
            await asyncio.gather(printing, return_exceptions=True)


async def _print(pieces: AsyncIterator[TextPiece]) -> None:
    transcript, printed = Transcript(), ""
    try:
        async for piece in pieces:
            text = transcript.add(piece)
            print(text, end="", file=sys.stderr, flush=True)
            printed = text or printed
    finally:
        if printed and not printed.endswith("\n"):
            say("")
