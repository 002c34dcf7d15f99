"""The loop of one queue: free slots ask the lanes for tasks, and commits follow the tasks that have ended.

It polls for free slots only, so that no lane fills a buffer behind which another would have to wait, and it never
waits for a task: tasks run beside it, and a partition's commit stands at the first one that has not ended.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from schemas.base import Priority
from schemas.models import Queue
from services.chassis.clock import LogClock
from services.chassis.kafka.supervision import Watch, supervise
from services.chassis.kafka.types import (
    Commit,
    Consumer,
    ConsumerSettings,
    RebalanceListener,
    Record,
    TopicPartition,
)
from services.chassis.logging import log
from services.worker.assignment import Assignment
from services.worker.desk import Desk
from services.worker.domain.lanes import LANES, LaneScheduler, Turn
from services.worker.domain.slots import Slots
from services.worker.engine_life import EngineLife

COMMIT_EVERY_S = 0.5
DRAIN_S = 2.0
"""How long a revoke waits for running tasks; those that go on keep their claims."""
QUIET_S = 0.2
"""Nor does it wait when nothing has ended for so long: meanwhile the partitions of all workers stand still."""
IDLE_S = 0.25
SATURATED_S = 0.005
"""How often reserved slots are offered while the others are taken: a wait for records would not hear of a slot."""
BLOCKED_S = 0.05
"""How often a partition too far ahead of its commit is looked at again."""


def consumer_settings(queue: Queue) -> ConsumerSettings:
    """How a worker is a member of its queue's group."""
    return ConsumerSettings(
        group=queue.group,
        topics=(queue.topic,),
        session_timeout_s=10.0,
        heartbeat_s=2.0,
        rebalance_timeout_s=10.0,
        lanes={queue.topic: tuple(queue.lanes.of(lane) for lane in LANES)},
    )


class Consumption:
    """A group member, until it is stopped; a consumer that fails or stalls is replaced, a few times in a row."""

    def __init__(
        self,
        queue: Queue,
        desk: Desk,
        *,
        slots: Slots,
        life: EngineLife,
        clock: LogClock,
        consumer_factory: Callable[[RebalanceListener], Consumer],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._desk = desk
        self._slots = slots
        self._life = life
        self._clock = clock
        self._consumer_factory = consumer_factory
        self._monotonic = monotonic
        self._scheduler = LaneScheduler(monotonic())
        self._assignment = Assignment(queue.lanes, {})
        self._consumer: Consumer
        self._watch: Watch
        self._taking = False
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def is_member(self) -> bool:
        """In the group and taking tasks, if perhaps owning none of its partitions."""
        return self._taking

    @property
    def stopping(self) -> bool:
        """It was told to drain."""
        return self._stopping.is_set()

    @property
    def committed(self) -> dict[int, int]:
        """The next offset by partition owned."""
        return self._assignment.progress

    async def run(self) -> None:
        """Until drained. Raises what ends the process: ProducerDeadError, or KafkaError without a broker."""
        self._ended.clear()
        await supervise(self._session, self._stopping, queue=self._queue.label)
        self._ended.set()

    def stop(self) -> None:
        """It is to take no more, commit and leave the group, so that others go on with what waits."""
        self._stopping.set()
        self._desk.changed.set()

    async def leave(self) -> None:
        """The same, and returns when it has left. Running tasks go on."""
        self.stop()
        await self._ended.wait()

    async def on_revoked(self, _: frozenset[TopicPartition]) -> None:
        """What runs may end in time to be committed; what waits is the next owner's."""
        await self._wind_up()

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """A fresh start from the group's commits."""
        self._assignment = Assignment(self._queue.lanes, await self._positions(partitions))
        self._slots.lent = not self._assignment.owns(LANES[0])
        self._taking = True
        self._desk.changed.set()
        log.info("partitions_assigned", queue=self._queue.label, partitions=sorted(tp.partition for tp in partitions))

    async def _positions(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each begins. A first commit is made where there is none, else its lag counts expired records."""
        found = {tp: commit.offset for tp, commit in (await self._consumer.committed(partitions)).items()}
        if missing := partitions - found.keys():
            first = await self._consumer.beginning_offsets(missing)
            await self._consumer.commit({tp: Commit(offset) for tp, offset in first.items()})
            found.update(first)
        return found

    async def _session(self) -> None:
        """The life of one consumer."""
        self._consumer = self._consumer_factory(self)
        self._watch = Watch(self._consumer, self._wanted)
        parts = [asyncio.create_task(part) for part in (self._consume(), self._commit_on_time(), self._watch.run())]
        try:
            await asyncio.wait([*parts, self._desk.failed], return_when=asyncio.FIRST_COMPLETED)
            for part in (self._desk.failed, *parts):
                if part.done():
                    part.result()
            await self._wind_up()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            self._let_go()
            await self._consumer.stop()

    async def _wind_up(self) -> None:
        self._taking = False
        self._desk.give_up_waiting()
        await self._desk.drain(DRAIN_S, QUIET_S)
        await self._commit()
        self._let_go()

    def _let_go(self) -> None:
        self._taking = False
        self._desk.give_up_waiting()
        self._assignment = Assignment(self._queue.lanes, {})

    async def _consume(self) -> None:
        await self._consumer.start()
        more = True
        while not self.stopping:
            self._desk.enter_parked()
            if not (more and await self._round()):
                more = await self._rest()
            if self._desk.start():
                await asyncio.sleep(0)  # they go first, then the next poll

    async def _round(self) -> int:
        """Fills the free slots, lane by lane, with what is there."""
        self._scheduler.begin()
        taken = 0
        while turn := self._scheduler.turn(self._free(), self._monotonic()):
            open_ = self._assignment.open(turn.lane)
            records = await self._poll(open_, turn.limit, 0.0) if open_ else ()
            self._scheduler.took(turn, len(records), self._monotonic())
            self._deliver(records)
            taken += len(records)
        return taken

    async def _rest(self) -> bool:
        """Until something may have come, or a slot is free again; whether there may be more than was taken."""
        self._desk.changed.clear()
        wait_s = min(IDLE_S, self._desk.due_in)
        free = self._free()
        idle = [lane for lane in LANES if free[lane]]
        if not idle:
            await self._until_changed(wait_s)
            await self._poll((), 0, 0.0)
            return True
        if any(self._assignment.owns(lane) and not free[lane] for lane in LANES):
            await self._until_changed(min(wait_s, SATURATED_S))
            return True
        open_ = [tp for lane in idle for tp in self._assignment.open(lane)]
        if len(open_) < len(self._assignment):
            wait_s = min(wait_s, BLOCKED_S)
        limit = min(free[lane] for lane in idle)
        records = await self._poll(open_, limit, wait_s)
        self._charge(records)
        return len(records) == limit

    def _charge(self, records: Sequence[Record]) -> None:
        """Takes records that came by any lane."""
        for lane, count in Counter(lane for record in records if (lane := self._assignment.lane(record))).items():
            self._scheduler.took(Turn(lane, count), count, self._monotonic())
        self._deliver(records)

    def _free(self) -> Mapping[Priority, int]:
        """How many tasks each lane may take now."""
        if not self._taking or not self._life.available:
            return dict.fromkeys(LANES, 0)
        room = self._desk.room
        free = {lane: room if self._life.refuses else min(room, self._slots.free(lane)) for lane in LANES}
        return {lane: free[lane] if self._assignment.owns(lane) else 0 for lane in LANES}

    async def _poll(
        self, partitions: Collection[TopicPartition], max_records: int, timeout_s: float
    ) -> Sequence[Record]:
        with self._watch.polling():
            return await self._consumer.poll(partitions, max_records=max_records, timeout_s=timeout_s)

    def _wanted(self) -> list[TopicPartition]:
        """Partitions whose tasks could be taken now."""
        free = self._free()
        return [tp for lane in LANES if free[lane] for tp in self._assignment.open(lane)]

    def _deliver(self, records: Sequence[Record]) -> None:
        """Hands records on, unless they ceased to be ours while they were polled."""
        if not records or not self._taking:
            return
        self._watch.delivered()
        self._clock.observe(max(record.timestamp for record in records))
        for record in records:
            lane, passed = self._assignment.lane(record), self._assignment.deliver(record)
            if lane is not None and passed is not None:
                self._desk.receive(record, lane, passed)

    async def _until_changed(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._desk.changed.wait()
        except TimeoutError:
            pass

    async def _commit_on_time(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            await self._commit()

    async def _commit(self) -> None:
        assignment = self._assignment
        offsets = assignment.committable()
        if not offsets:
            return
        taken = await self._consumer.commit(offsets)
        self._watch.committed(taken=taken)
        if taken:
            assignment.committed(offsets)
