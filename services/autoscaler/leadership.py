"""One autoscaler leads: the one to which its group has given the fleet topic's partition.

The group alone is not enough: a process that was paused does not know yet that it leads no more. So each reign begins
with a record, whose offset is its epoch. A later one's is higher, and hosts obey the highest.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from schemas.fleet import AutoscalerStarted
from schemas.topics import AUTOSCALER_GROUP, FLEET
from services.chassis.clock import LogClock
from services.chassis.fleet import status_record
from services.chassis.kafka.supervision import supervise
from services.chassis.kafka.types import (
    Consumer,
    ConsumerSettings,
    KafkaError,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from services.chassis.logging import log

THRONE = TopicPartition(FLEET, 0)
MEMBERSHIP = ConsumerSettings(AUTOSCALER_GROUP, (FLEET,), session_timeout_s=6.0, rebalance_timeout_s=6.0)
"""A leader that was killed is replaced when its session is over; one that leaves, at once."""
POLL_S = 0.5
JOINED_WITHIN_S = 30.0
"""A client that has lost its coordinator for good does not notice: another one is made."""

Reign = Callable[[int], Awaitable[None]]
"""What is done while leading, from an epoch on; cancelled when it is over."""


class Leadership:
    """A member of the group."""

    def __init__(
        self,
        consumer_factory: Callable[[RebalanceListener], Consumer],
        producer: Producer,
        clock: LogClock,
        instance: str,
        reign: Reign,
    ) -> None:
        self._consumer_factory = consumer_factory
        self._producer = producer
        self._clock = clock
        self._instance = instance
        self._reign = reign
        self._task: asyncio.Task[None] | None = None
        self._outside_since: float | None = time.monotonic()

    async def run(self) -> None:
        """A component. Raises what a reign raised, and KafkaError when no consumer lasts."""
        await supervise(self._live, asyncio.Event())

    def why_not_ready(self) -> str | None:
        """For readiness: whether it would lead if nobody else did."""
        return None if self._outside_since is None else "not a member of its group"

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._outside_since = None
        if THRONE in partitions:
            self._task = asyncio.create_task(self._lead())
        else:
            log.info("autoscaler_stands_by")

    async def on_revoked(self, _: frozenset[TopicPartition]) -> None:
        self._outside_since = time.monotonic()
        await self._abdicate()

    async def _live(self) -> None:
        """The life of one consumer."""
        self._outside_since = time.monotonic()
        consumer = self._consumer_factory(self)
        try:
            await consumer.start()
            while True:
                await consumer.poll((), max_records=0, timeout_s=POLL_S)
                self._require_membership()
        finally:
            try:
                await self._abdicate()  # raises what the reign raised
            finally:
                await consumer.stop()

    def _require_membership(self) -> None:
        if self._task is not None and self._task.done():
            self._task.result()
        if self._outside_since is not None and time.monotonic() - self._outside_since > JOINED_WITHIN_S:
            raise KafkaError(f"the group {AUTOSCALER_GROUP} could not be joined within {JOINED_WITHIN_S:.0f} s")

    async def _lead(self) -> None:
        (begun,) = await self._producer.send_all([status_record(AutoscalerStarted(instance=self._instance))])
        self._clock.observe(begun.timestamp)
        log.info("autoscaler_leads", epoch=begun.offset)
        await self._reign(begun.offset)

    async def _abdicate(self) -> None:
        """Returns when the reign is over: what it has learned is kept by then."""
        task = self._task
        if task is None:
            return
        if not task.cancelling():
            task.cancel()
        await asyncio.wait({task})
        if self._task is task:
            self._task = None
            log.info("autoscaler_leads_no_more")
        if not task.cancelled():
            task.result()
