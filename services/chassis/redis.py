"""The store that holds no truth: every call is bounded by a second, and one that fails costs nobody else a second."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from services.chassis.logging import log
from services.chassis.settings import RedisSettings, SettingsError

CALL_TIMEOUT_S = 1.0
REST_S = 1.0
"""How long calls fail at once after an unanswered one: with Redis frozen, not every task may wait a second."""
MAX_CONNECTIONS = 16


def connect(settings: RedisSettings, monotonic: Callable[[], float] = time.monotonic) -> Redis:
    """A client that connects when it is used. Raises SettingsError for an address whose options mean nothing.

    Everything it raises is a RedisError; callers go on without it. Text in, text out.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            settings.url.get_secret_value(),
            decode_responses=True,
            max_connections=MAX_CONNECTIONS,
            timeout=CALL_TIMEOUT_S,
            socket_timeout=CALL_TIMEOUT_S,
            socket_connect_timeout=CALL_TIMEOUT_S,
            retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        )
    except ValueError:
        raise SettingsError("HEADWAY_REDIS_URL: what follows its `?` cannot be read") from None
    return _BoundedRedis(pool, monotonic)


class _BoundedRedis(Redis):
    """A client whose commands take a second at most; after an unanswered one the next are refused for a second.

    They go one after another over one connection, for to take one from the pool costs more than a command itself.
    Pipelines and subscriptions have their own.
    """

    def __init__(self, pool: BlockingConnectionPool, monotonic: Callable[[], float]) -> None:
        super().__init__(connection_pool=pool)
        self.auto_close_connection_pool = True
        self._monotonic = monotonic
        self._rests_until: float | None = None
        self._turn = asyncio.Lock()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if self._rests_until is not None and self._monotonic() < self._rests_until:
            raise RedisConnectionError("Redis did not answer a moment ago")
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S), self._turn:
                await self._have_connection()
                answer = await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except (RedisConnectionError, RedisTimeoutError) as error:
            self._went_away(error)
            raise
        except (TimeoutError, OSError) as error:
            self._went_away(error)
            raise RedisTimeoutError("Redis did not answer") from error
        self._came_back()
        return answer

    async def _have_connection(self) -> None:
        if self.connection is None:
            self.connection = await self.connection_pool.get_connection()  # type: ignore[no-untyped-call]
            self.connection.socket_timeout = None  # a command is bounded as a whole; its parts need not be

    def _went_away(self, error: Exception) -> None:
        if self._rests_until is None:
            log.warning("redis_away", exc_info=error)
        self._rests_until = self._monotonic() + REST_S

    def _came_back(self) -> None:
        if self._rests_until is not None:
            self._rests_until = None
            log.info("redis_back")
