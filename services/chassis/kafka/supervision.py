"""What keeps a group member going: a watch over its consumer, and a new consumer for one that fails or is stuck."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator

from services.chassis.kafka.types import Consumer, KafkaError, ProducerDeadError, TopicPartition
from services.chassis.logging import log

WATCH_S = 10.0
POLL_STALL_S = 30.0
"""Longer than a rebalance, through which a poll may be held."""
DELIVERY_STALL_S = 60.0
COMMIT_STALL_S = 30.0
"""Longer than a session and a rebalance. A client that has lost its coordinator for good goes on fetching, and the
group goes on without it: everything would be done twice."""
MAX_FAILURES = 5
STABLE_S = 120.0
"""A consumer that has lived so long does not count among failures in a row."""
RESTART_S = 1.0


class StalledError(KafkaError):
    """The consumer is alive but stuck: it is replaced."""


async def supervise(session: Callable[[], Awaitable[None]], stopping: asyncio.Event, **labels: str) -> None:
    """Awaits sessions, each the life of one consumer, until told to stop; `labels` go into the log.

    A session that fails is followed by the next, a few times in a row; then its KafkaError is raised. Raises
    ProducerDeadError, and whatever is not Kafka's, at once.
    """
    loop, failures = asyncio.get_running_loop(), 0
    while not stopping.is_set():
        began = loop.time()
        try:
            await session()
        except ProducerDeadError:
            raise
        except KafkaError as error:
            failures = 1 if loop.time() - began > STABLE_S else failures + 1
            if failures >= MAX_FAILURES:
                raise
            log.warning("consumer_replaced", failures=failures, exc_info=error, **labels)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESTART_S * failures):
                    await stopping.wait()


class Watch:
    """Notices a consumer that is alive but stuck, as some failures of a broker leave it."""

    def __init__(self, consumer: Consumer, wanted: Callable[[], Collection[TopicPartition]]) -> None:
        """`wanted`: the partitions whose records would be delivered now, if there are any."""
        self._consumer = consumer
        self._wanted = wanted
        self._loop = asyncio.get_running_loop()
        self._polling_since: float | None = None
        self._delivered = False
        self._refused_since: float | None = None
        """No commit has been taken since then."""

    @contextlib.contextmanager
    def polling(self) -> Iterator[None]:
        """Around every poll."""
        self._polling_since = self._loop.time()
        yield
        self._polling_since = None

    def delivered(self) -> None:
        """Records have come."""
        self._delivered = True

    def committed(self, *, taken: bool) -> None:
        """A commit was asked for."""
        if taken:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = self._loop.time()

    async def run(self) -> None:
        """Until cancelled. Raises StalledError."""
        behind_s = 0.0
        while True:
            await asyncio.sleep(WATCH_S)
            if self._polling_since is not None and self._loop.time() - self._polling_since > POLL_STALL_S:
                raise StalledError(f"a poll has not returned for {POLL_STALL_S:.0f} s")
            idle, self._delivered = not self._delivered, False
            if not idle and self._is_refused():
                raise StalledError(f"records are delivered, but no commit was taken for {COMMIT_STALL_S:.0f} s")
            behind_s = behind_s + WATCH_S if idle and await self._is_behind() else 0.0
            if behind_s > DELIVERY_STALL_S:
                raise StalledError(f"records exist, but none was delivered for {DELIVERY_STALL_S:.0f} s")

    def _is_refused(self) -> bool:
        return self._refused_since is not None and self._loop.time() - self._refused_since > COMMIT_STALL_S

    async def _is_behind(self) -> bool:
        """Whether wanted records exist. An unreachable broker is no reason to replace the consumer."""
        try:
            positions = await self._consumer.positions(self._wanted())
            ends = await self._consumer.end_offsets(positions) if positions else {}
        except KafkaError:
            return False
        return any(ends[tp] > position for tp, position in positions.items())
