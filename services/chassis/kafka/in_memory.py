"""A broker in this process: the twin of the aiokafka adapter, run through the same contract suite.

It keeps no clock and sleeps only through what it is given: a simulator can run it in virtual time from one seed.
Each part works in the context it was made in: what a producer or a member of a group does goes on, or stands still,
with the process that made it, and the broker's own work with none of them.
"""

import asyncio
from asyncio import Future, Task
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from services.chassis.kafka.assignor import assign
from services.chassis.kafka.records import partition_of, require_metadata, require_size
from services.chassis.kafka.types import (
    Appended,
    Commit,
    ConsumerSettings,
    KafkaError,
    Outgoing,
    ProducerDeadError,
    RebalanceListener,
    Record,
    TopicPartition,
)

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Faults:
    """What befalls appends, drawn from `random`. Order within a partition holds, as with an idempotent producer."""

    random: Random
    delay_s: float = 0.0
    """An append waits up to this long, each partition by itself: partitions overtake each other."""
    lost_acknowledgements: float = 0.0
    """The chance that an acknowledgement gets lost: it comes `retry_s` later, when the client has asked again."""
    retry_s: float = 1.0
    heartbeat_s: float = 0.0
    """A member learns up to this late that its group rebalances, or goes on without it."""
    fetch_s: float = 0.0
    """Records that were there before a poll take up to this long to come."""


CommitListener = Callable[[str, Mapping[TopicPartition, Commit]], None]


class InMemoryKafka:
    """Topics, groups and their commits. `clock` gives the broker's time in milliseconds."""

    def __init__(self, clock: Callable[[], int], sleep: Sleep = asyncio.sleep, faults: Faults | None = None) -> None:
        self.sleep = sleep
        self.faults = faults
        self.on_commit: CommitListener | None = None
        """Hears of every commit that a group has taken."""
        self._context = copy_context()
        self._clock = clock
        self._topics: dict[str, list[list[Record]]] = {}
        self.groups: dict[str, _Group] = {}
        self._consumers: dict[InMemoryConsumer, None] = {}
        self._tasks: set[Task[None]] = set()

    def create_topic(self, name: str, partitions: int) -> None:
        """Also grows an existing topic; its consumers' groups rebalance."""
        log = self._topics.setdefault(name, [])
        log.extend([] for _ in range(partitions - len(log)))
        for group in self.groups.values():
            group.on_topic_changed(name)

    def consumer(self, settings: ConsumerSettings, listener: RebalanceListener) -> "InMemoryConsumer":
        """A member of a group, not started."""
        return InMemoryConsumer(self, settings, listener)

    def producer(self) -> "InMemoryProducer":
        """A producer, not started."""
        return InMemoryProducer(self)

    def partitions(self, topic: str) -> range:
        """The partitions of a topic. Raises KafkaError when it does not exist."""
        if topic not in self._topics:
            raise KafkaError(f"topic {topic} does not exist")
        return range(len(self._topics[topic]))

    def log(self, tp: TopicPartition) -> list[Record]:
        """The records of a partition; an offset is an index."""
        if tp.partition not in self.partitions(tp.topic):
            raise KafkaError(f"topic {tp.topic} has no partition {tp.partition}")
        return self._topics[tp.topic][tp.partition]

    def records(self, topic: str) -> list[Record]:
        """Every record of a topic, partition by partition."""
        return [record for number in self.partitions(topic) for record in self.log(TopicPartition(topic, number))]

    def append(self, tp: TopicPartition, record: Outgoing) -> Appended:
        """Stamps and appends one record."""
        log = self.log(tp)
        stamped = Record(*tp, len(log), self._clock(), record.key, record.value, record.headers)
        log.append(stamped)
        for consumer in self._consumers:
            if tp.topic in consumer.settings.topics:
                consumer.wake()
        return Appended(tp.partition, stamped.offset, stamped.timestamp)

    def group(self, name: str) -> "_Group":
        """A group, created at its first use."""
        if name not in self.groups:
            self.groups[name] = _Group(self, name)
        return self.groups[name]

    def attach(self, consumer: "InMemoryConsumer") -> None:
        """From now on the consumer hears of appends."""
        self._consumers[consumer] = None

    def detach(self, consumer: "InMemoryConsumer") -> None:
        """The consumer hears no more."""
        self._consumers.pop(consumer, None)

    def spawn(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> Task[None]:
        """Runs something in the background: in the given context, else the broker's own."""
        task = asyncio.create_task(work, context=context or self._context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def within(self, tasks: Collection[Future[None]], seconds: float) -> None:
        """Waits for all of them, but no longer; those that go on are left alone."""
        if not tasks:
            return
        limit = asyncio.ensure_future(self.sleep(seconds))
        everything = asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait({limit, everything}, return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()
        everything.cancel()


class _Group:
    """The coordinator of one group: eager rebalances, commits fenced by membership and generation."""

    def __init__(self, broker: InMemoryKafka, name: str) -> None:
        self._broker = broker
        self._name = name
        self._members: dict[str, InMemoryConsumer] = {}
        self._giving_up: dict[str, Future[None]] = {}
        """Members that the rebalance under way waits for."""
        self._ids = count()
        self._rebalance: Task[None] | None = None
        self._again = False
        self.generation = 0
        self.commits: dict[TopicPartition, Commit] = {}

    def join(self, consumer: "InMemoryConsumer") -> str:
        """A new member; everyone rebalances. Returns its id."""
        member = f"member-{next(self._ids):06}"
        self._members[member] = consumer
        self._start_rebalance()
        return member

    def leave(self, member: str) -> None:
        """Its partitions go to the others."""
        if self._members.pop(member, None) and self._members:
            self._start_rebalance()

    def expel(self, member: str) -> None:
        """Nothing was heard of it for its session time-out: the others go on, and it joins again when it hears."""
        consumer = self._members.pop(member, None)
        if consumer is None:
            return
        if waited_for := self._giving_up.pop(member, None):
            waited_for.cancel()
        consumer.rejoin_after(consumer.revoke())
        if self._members:
            self._start_rebalance()

    def on_topic_changed(self, topic: str) -> None:
        """A topic was created or has grown."""
        if any(topic in consumer.settings.topics for consumer in self._members.values()):
            self._start_rebalance()

    def commit(self, member: str, generation: int, offsets: Mapping[TopicPartition, Commit]) -> bool:
        """False when the member or its generation is not the group's any more."""
        if member not in self._members or generation != self.generation:
            return False
        self.commits.update(offsets)
        if self._broker.on_commit:
            self._broker.on_commit(self._name, offsets)
        return True

    def _start_rebalance(self) -> None:
        self._again = True
        if self._rebalance is None or self._rebalance.done():
            self._rebalance = self._broker.spawn(self._rebalance_until_stable())

    async def _rebalance_until_stable(self) -> None:
        while self._again:
            self._again = False
            await self._revoke_all()
            self.generation += 1
            for member, partitions in self._assignment().items():
                self._members[member].assign(self.generation, partitions)

    async def _revoke_all(self) -> None:
        """Members that do not give up their partitions in time are out; they join again when they have."""
        timeout_s = max((member.settings.rebalance_timeout_s for member in self._members.values()), default=0.0)
        revoking = {member: consumer.revoke() for member, consumer in self._members.items()}
        self._giving_up = {member: asyncio.shield(task) for member, task in revoking.items()}
        await self._broker.within(list(self._giving_up.values()), timeout_s)
        for member, task in revoking.items():
            if not task.done() and (consumer := self._members.pop(member, None)):
                consumer.rejoin_after(task)

    def _assignment(self) -> dict[str, frozenset[TopicPartition]]:
        subscriptions = {member: consumer.settings.topics for member, consumer in self._members.items()}
        topics = {topic for subscribed in subscriptions.values() for topic in subscribed}
        partitions = {topic: self._broker.partitions(topic) for topic in topics}
        # As with Kafka, one member leads, and its lanes count for all.
        lanes = next((consumer.settings.lanes for consumer in self._members.values()), {})
        return {member: frozenset(owned) for member, owned in assign(subscriptions, partitions, lanes).items()}


class InMemoryConsumer:
    """One member of a group, or a reader of everything."""

    def __init__(self, broker: InMemoryKafka, settings: ConsumerSettings, listener: RebalanceListener) -> None:
        self.settings = settings
        self.member_id = ""
        self._broker = broker
        self._context = copy_context()
        self._listener = listener
        self._group = broker.group(settings.group) if settings.group is not None else None
        self._generation = 0
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._positions: dict[TopicPartition, int] = {}
        self._ready = False
        self._stopped = False
        self._joined = asyncio.Event()
        self._callback: Task[None] | None = None
        self._failure: BaseException | None = None
        self._waiter: Future[None] | None = None
        self._turn = 0

    async def start(self) -> None:
        """Joins, and waits for the first assignment."""
        everything = frozenset(
            TopicPartition(topic, partition)
            for topic in self.settings.topics
            for partition in self._broker.partitions(topic)
        )
        self._broker.attach(self)
        if self._group:
            self.member_id = self._group.join(self)
        else:
            self.assign(0, everything)
        await self._joined.wait()

    def expel(self) -> None:
        """Its heartbeats do not reach the coordinator: the group goes on without it."""
        if self._group:
            self._group.expel(self.member_id)

    async def stop(self) -> None:
        """Leaves at once."""
        self._stopped = True
        self._broker.detach(self)
        self._forget()
        if self._group:
            self._group.leave(self.member_id)

    async def poll(
        self, partitions: Collection[TopicPartition] | None, *, max_records: int, timeout_s: float
    ) -> Sequence[Record]:
        # Without a sleep a busy reader would starve the loop.
        faults = self._broker.faults
        await self._broker.sleep(faults.random.uniform(0, faults.fetch_s) if faults and max_records else 0)
        if (records := self._take(partitions, max_records)) or timeout_s <= 0:
            return records
        limit = asyncio.ensure_future(self._broker.sleep(timeout_s))
        limit.add_done_callback(lambda _: self.wake())
        try:
            while not (records := self._take(partitions, max_records)) and not limit.done():
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        finally:
            limit.cancel()
        return records

    def assignment(self) -> frozenset[TopicPartition]:
        return self._assigned

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if partition not in self._assigned:
            raise KafkaError(f"{partition} is not assigned")
        self._positions[partition] = offset
        self.wake()

    async def commit(self, offsets: Mapping[TopicPartition, Commit]) -> bool:
        for commit in offsets.values():
            require_metadata(commit.metadata)
        if self._group is None:
            raise KafkaError("a reader outside any group cannot commit")
        if not self._assigned.issuperset(offsets):
            return False
        return self._group.commit(self.member_id, self._generation, offsets)

    async def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Commit]:
        commits = self._group.commits if self._group else {}
        return {tp: commits[tp] for tp in sorted(partitions) if tp in commits}

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self._positions[tp] for tp in sorted(partitions) if tp in self._positions}

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: 0 for tp in sorted(partitions) if self._broker.log(tp) is not None}

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: len(self._broker.log(tp)) for tp in sorted(partitions)}

    def wake(self) -> None:
        """Something may be there to poll."""
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def revoke(self) -> Task[None]:
        """Gives up everything, when the last callback is done; the task ends when the listener has been told."""
        self._callback = self._broker.spawn(self._revoke(self._callback), self._context)
        return self._callback

    def assign(self, generation: int, partitions: frozenset[TopicPartition]) -> None:
        """A new generation's share."""
        self._generation = generation
        self._assigned = partitions
        commits = self._group.commits if self._group else {}
        self._positions = {tp: commits[tp].offset if tp in commits else 0 for tp in partitions}
        self._joined.set()
        self._callback = self._broker.spawn(self._tell_assigned(partitions), self._context)

    def rejoin_after(self, revoking: Task[None]) -> None:
        """The group goes on without this member, until that has ended."""
        self._broker.spawn(self._rejoin_after(revoking), self._context)

    async def _rejoin_after(self, revoking: Task[None]) -> None:
        await asyncio.wait({revoking})
        if self._group and not self._stopped:
            self.member_id = self._group.join(self)

    async def _revoke(self, previous: Task[None] | None) -> None:
        if self._broker.faults and self._broker.faults.heartbeat_s:
            await self._broker.sleep(self._broker.faults.random.uniform(0, self._broker.faults.heartbeat_s))
        self._ready = False
        if previous:
            await asyncio.wait({previous})
        if self._assigned:
            await self._tell(self._listener.on_revoked(self._assigned))
        self._forget()

    async def _tell_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        await self._tell(self._listener.on_assigned(partitions))
        self._ready = self._assigned is partitions and self._failure is None
        self.wake()

    async def _tell(self, callback: Awaitable[None]) -> None:
        """A listener's error is raised by the next poll."""
        try:
            await callback
        except Exception as error:
            self._failure = error

    def _forget(self) -> None:
        self._assigned = frozenset()
        self._positions = {}
        self._ready = False

    def _take(self, partitions: Collection[TopicPartition] | None, max_records: int) -> list[Record]:
        if self._failure:
            raise self._failure
        if not self._ready:
            return []
        taken: list[Record] = []
        for tp in self._in_turn(self._assigned if partitions is None else self._assigned.intersection(partitions)):
            position = self._positions[tp]
            fresh = self._broker.log(tp)[position : position + max_records - len(taken)]
            self._positions[tp] = position + len(fresh)
            taken.extend(fresh)
        return taken

    def _in_turn(self, partitions: Iterable[TopicPartition]) -> deque[TopicPartition]:
        """Each poll begins with another partition."""
        ordered = deque(sorted(partitions))
        ordered.rotate(-self._turn)
        self._turn += 1
        return ordered


class InMemoryProducer:
    """Appends, through the broker's faults if it has any."""

    def __init__(self, broker: InMemoryKafka) -> None:
        self._broker = broker
        self.faults = broker.faults
        self._context = copy_context()
        self._dead: Future[None] | None = None
        self._failure: KafkaError | None = None
        self._queues: dict[TopicPartition, deque[tuple[Outgoing, Future[Appended]]]] = {}
        self._keyless = 0

    @property
    def dead(self) -> "Future[None]":
        if self._dead is None:
            self._dead = asyncio.get_running_loop().create_future()
        return self._dead

    async def start(self) -> None:
        """Nothing to connect to."""

    async def stop(self) -> None:
        self._failure = KafkaError("the producer has stopped: whether the record was appended is unknown")
        self._fail_pending(self._failure)

    def die(self, reason: str = "injected") -> None:
        """From now on everything fails, as after a record that the broker refused."""
        self._failure = ProducerDeadError(reason)
        self.dead.set_exception(self._failure)
        self.dead.exception()
        self._fail_pending(self._failure)

    async def send(self, record: Outgoing) -> "Future[Appended]":
        require_size(record)
        if self._failure:
            raise self._failure
        future: Future[Appended] = asyncio.get_running_loop().create_future()
        tp = self._partition(record)
        if self.faults is None:
            future.set_result(self._broker.append(tp, record))
        else:
            self._enqueue(tp, record, future)
        return future

    async def send_all(self, records: Sequence[Outgoing]) -> Sequence[Appended]:
        futures = [await self.send(record) for record in records]
        return await asyncio.gather(*futures)

    def _partition(self, record: Outgoing) -> TopicPartition:
        partitions = self._broker.partitions(record.topic)
        if record.partition is not None:
            if record.partition not in partitions:
                raise KafkaError(f"topic {record.topic} has no partition {record.partition}")
            return TopicPartition(record.topic, record.partition)
        if record.key is not None:
            return TopicPartition(record.topic, partition_of(record.key, len(partitions)))
        self._keyless += 1
        return TopicPartition(record.topic, self._keyless % len(partitions))

    def _enqueue(self, tp: TopicPartition, record: Outgoing, future: Future[Appended]) -> None:
        queue = self._queues.setdefault(tp, deque())
        queue.append((record, future))
        if len(queue) == 1:
            self._broker.spawn(self._deliver(tp, queue), self._context)

    async def _deliver(self, tp: TopicPartition, queue: deque[tuple[Outgoing, Future[Appended]]]) -> None:
        """One partition's appends, in order: the next one waits for the acknowledgement of the one before."""
        while queue and (faults := self.faults):
            await self._broker.sleep(faults.random.uniform(0, faults.delay_s))
            if not queue:
                return
            record, future = queue[0]
            appended = self._broker.append(tp, record)
            if faults.random.random() < faults.lost_acknowledgements:
                await self._broker.sleep(faults.retry_s)
            if not future.done():
                future.set_result(appended)
            if queue:
                queue.popleft()

    def _fail_pending(self, error: Exception) -> None:
        for queue in self._queues.values():
            for _, future in queue:
                _fail(future, error)
            queue.clear()


def _fail(future: Future[Appended], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Whoever awaits it sees the error; nobody has to.
        future.exception()
