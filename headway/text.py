"""What a run says before its response: text of steps that stream, as it comes.

async with HeadwayClient("127.0.0.1:9092") as headway:
    async with pieces_of("redis://127.0.0.1:6379", run_id("default", "my-request")) as pieces:
        await headway.submit("chat", {"message": "What is the capital of France?"}, request_id="my-request")
        async for piece in pieces:
            ...

Best effort: the response is the answer, and tells when to stop listening. It needs the store's address, which a plane
with access rights gives to its own services alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import ValidationError
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from schemas.ids import run_id
from schemas.redis_keys import text_channel
from schemas.text import TextPiece

__all__ = ["TextPiece", "pieces_of", "run_id"]

CONNECT_TIMEOUT_S = 1.0


@asynccontextmanager
async def pieces_of(redis_url: str, run: str) -> AsyncIterator[AsyncIterator[TextPiece]]:
    """The pieces that are published from now on, without an end: enter it, then submit.

    Where the store cannot be reached, or is lost, they end; that is no error. ValueError for an address that is none.
    """
    redis = Redis.from_url(redis_url, decode_responses=True, socket_connect_timeout=CONNECT_TIMEOUT_S)
    channel = redis.pubsub(ignore_subscribe_messages=True)
    try:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await channel.subscribe(text_channel(run))
        except (RedisError, OSError, TimeoutError):
            yield _nothing()
        else:
            yield _heard(channel)
    finally:
        await channel.aclose()  # type: ignore[no-untyped-call]
        await redis.aclose()


async def _nothing() -> AsyncIterator[TextPiece]:
    return
    yield


async def _heard(channel: PubSub) -> AsyncIterator[TextPiece]:
    """Messages that are no pieces, or a newer version's, are passed over."""
    try:
        async for message in channel.listen():
            try:
                piece = TextPiece.model_validate_json(message["data"])
            except ValidationError:
                continue
            yield piece
    except (RedisError, OSError):
        return
