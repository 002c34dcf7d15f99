"""Text as it comes, by Redis pub/sub."""

import asyncio
from collections.abc import Sequence

from redis.asyncio import Redis
from redis.exceptions import RedisError

from schemas.redis_keys import text_channel
from schemas.text import TextPiece
from services.worker.domain.ports import TextLost

TIMEOUT_S = 1.0
"""Text that is older need not be heard any more."""


class RedisTextChannel:
    """One round trip for many pieces, on a connection of its own: claims do not wait behind it."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def publish(self, pieces: Sequence[TextPiece]) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S), self._redis.pipeline(transaction=False) as batch:
                for piece in pieces:
                    batch.publish(text_channel(piece.run_id), piece.model_dump_json())
                await batch.execute()
        except (RedisError, OSError, TimeoutError) as error:
            raise TextLost("Redis did not take it") from error
