"""What operators do to a broker: create and reconcile topics, and look at lag. Used by the CLI and by tests."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Target
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError as ClientError
from aiokafka.errors import TopicAlreadyExistsError, for_code

from schemas.topics import Topic
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.reconciliation import (
    OFFSETS,
    PRODUCTION_REPLICATION,
    Plan,
    TopicChange,
    TopicState,
    plan,
    plan_offsets,
)
from services.chassis.kafka.types import KafkaError, TopicPartition

TIMEOUT_S = 30.0
RETRY_S = 0.1
SET_ON_TOPIC = 1
"""The config source of a setting made on the topic itself."""


class Lag(NamedTuple):
    """One partition's backlog. `committed` is None for a group without a commit there."""

    committed: int | None
    end: int


class Admin:
    """One connection for administration; an asynchronous context manager."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Raises KafkaError when no broker answers."""
        settings = self._connection.client_settings()
        self._client = AIOKafkaAdminClient(**settings)
        self._reader = AIOKafkaConsumer(**settings)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._client.start()
                await self._reader.start()
        except (ClientError, TimeoutError) as error:
            await self.stop()
            servers = self._connection.bootstrap_servers
            raise KafkaError(f"cannot reach Kafka at {servers}: {str(error) or 'no answer'}") from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Closes both clients."""
        await self._reader.stop()
        await self._client.close()

    async def reconcile(
        self,
        topics: Iterable[Topic],
        replication_factor: int,
        partitions: int | None = None,
        *,
        dry_run: bool = False,
    ) -> list[TopicChange]:
        """Makes the broker's topics what they should be: creates, grows, sets. Returns what it did (or would do).

        `partitions` are asked for where a topic has no number of its own; None: what it has, or the default.
        A longer retention than asked for is kept. Raises TopicError, before anything is changed, where that would
        lose data: fewer partitions, other partitions for a topic keyed by run, another clean-up policy; and where
        there are fewer copies than asked for, of commits too, since adding some moves data between brokers.
        """
        wanted = {topic.name: topic for topic in topics}
        states = await self.describe([*wanted, OFFSETS])
        plans = [plan(topic, states.get(topic.name), replication_factor, partitions) for topic in wanted.values()]
        if replication_factor >= PRODUCTION_REPLICATION:
            plans += plan_offsets(states.get(OFFSETS), await self._offsets_default(), replication_factor)
        if not dry_run:
            for each in plans:
                await self._apply(each, replication_factor)
            await self.wait_for_leaders({each.name: each.partitions for each in plans if each.name in wanted})
        return [change for each in plans for change in each.changes()]

    async def creates_topics_unasked(self) -> bool:
        """Whether a broker makes a topic of whatever name a client mentions, with settings nobody chose."""
        return any(each["auto.create.topics.enable"] == "true" for each in await self._broker_settings())

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """The topics among these that exist."""
        found = await self._topics()
        existing = [name for name in topics if self._name(name) in found]
        if not existing:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, self._name(name)) for name in existing]
        responses = await self._answer(lambda: self._client.describe_configs(resources))
        entries = {}
        for code, message, _, topic, settings in (each for answer in responses for each in answer.resources):
            _require(code, topic, message)
            entries[topic] = settings
        return {name: _state(found[full], entries[full]) for name, full in self._full(existing)}

    async def wait_for_leaders(self, partitions: Mapping[str, int]) -> None:
        """Returns when every partition of these topics answers. `partitions` are the counts by topic.

        Right after a topic is created its partitions answer NotLeaderForPartition for a moment.
        """
        await self._ends(
            [TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)]
        )

    async def lag(self, group: str, topics: Collection[str]) -> dict[TopicPartition, Lag]:
        """Committed and end offsets of a group, for each partition of those topics that exist."""
        found = await self._topics()
        partitions = [
            TopicPartition(name, number)
            for name, full in self._full(topics)
            for number in range(len(found.get(full, ())))
        ]
        if not partitions:
            return {}
        targets = [self._target(tp) for tp in partitions]
        name = self._connection.group(group)
        commits = await self._answer(lambda: self._client.list_consumer_group_offsets(name, partitions=targets))
        # -1, or left out where the coordinator has not heard of the topic yet: no commit.
        committed = {target: commit.offset for target, commit in commits.items() if commit.offset >= 0}
        ends = await self._ends(partitions)
        return {tp: Lag(committed.get(target), ends[tp]) for tp, target in zip(partitions, targets, strict=True)}

    async def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Deletes every record below these offsets, for good: Kafka removes nothing but the beginning of a partition.

        Raises KafkaError, also for an offset past the end.
        """
        wanted = {self._target(tp): RecordsToDelete(offset) for tp, offset in offsets.items()}
        await self._answer(lambda: self._client.delete_records(wanted))

    async def _apply(self, planned: Plan, replication_factor: int) -> None:
        name = self._name(planned.name)
        if planned.create:
            await self._create(name, planned, replication_factor)
        if planned.grow:
            grown = {name: NewPartitions(planned.partitions)}
            await self._answer(lambda: self._client.create_partitions(grown))
        if planned.wrong:
            # This replaces every setting of the topic: those of others are sent again.
            resource = ConfigResource(ConfigResourceType.TOPIC, name, {**planned.kept, **planned.wrong})
            for answer in await self._answer(lambda: self._client.alter_configs([resource])):
                for code, message, *_ in answer.resources:
                    _require(code, name, message)

    async def _create(self, name: str, planned: Plan, replication_factor: int) -> None:
        new = NewTopic(name, planned.partitions, replication_factor, topic_configs=dict(planned.settings))
        answer = await self._answer(lambda: self._client.create_topics([new]))
        for _, code, message in answer.topic_errors:
            # Another instance may have been faster.
            if for_code(code) is not TopicAlreadyExistsError:
                _require(code, name, message)

    async def _topics(self) -> dict[str, list[int]]:
        """The copies of each partition of every topic: to ask by name could create one, where auto-creation is on."""
        found = await self._answer(lambda: self._client.describe_topics(None))
        return {topic["topic"]: [len(each["replicas"]) for each in topic["partitions"]] for topic in found}

    async def _offsets_default(self) -> int:
        """Copies that the topic of commits would be made with, by the broker that asks for the fewest."""
        return min(int(each["offsets.topic.replication.factor"]) for each in await self._broker_settings())

    async def _broker_settings(self) -> list[dict[str, str]]:
        """Of each broker."""
        cluster = await self._answer(self._client.describe_cluster)
        resources = [
            ConfigResource(ConfigResourceType.BROKER, str(broker["node_id"])) for broker in cluster["brokers"]
        ]
        answers = await self._answer(lambda: self._client.describe_configs(resources))
        return [
            {name: value for name, value, *_ in settings} for answer in answers for *_, settings in answer.resources
        ]

    async def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        targets = [self._target(tp) for tp in partitions]

        async def ask() -> Mapping[Target, int]:
            # The client would find out about one topic after another, 0.1 s each.
            await self._reader._client.set_topics({target.topic for target in targets})
            return dict(await self._reader.end_offsets(targets))

        ends = await self._answer(ask)
        return {tp: ends[target] for tp, target in zip(partitions, targets, strict=True)}

    async def _answer(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Asks again while the cluster is settling, for 30 s at most."""
        error: Exception | None = None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    try:
                        return await ask()
                    except ClientError as failed:
                        error = failed
                        if not failed.retriable:
                            break
                    await asyncio.sleep(RETRY_S)
        except TimeoutError as expired:
            error = error or expired
        raise KafkaError(f"Kafka at {self._connection.bootstrap_servers}: {error!r}") from error

    def _full(self, topics: Iterable[str]) -> list[tuple[str, str]]:
        return [(name, self._name(name)) for name in topics]

    def _name(self, topic: str) -> str:
        """As the broker knows it: Kafka's own topic has no prefix."""
        return topic if topic == OFFSETS else self._connection.topic(topic)

    def _target(self, tp: TopicPartition) -> Target:
        return Target(self._connection.topic(tp.topic), tp.partition)


def _state(copies: Sequence[int], entries: Iterable[Sequence[Any]]) -> TopicState:
    """From the copies of each partition, and a description's entries (name, value, read only, source, …)."""
    settings, overrides = {}, set()
    for name, value, _, source, *_ in entries:
        settings[name] = value
        if source == SET_ON_TOPIC:
            overrides.add(name)
    return TopicState(len(copies), min(copies), settings, frozenset(overrides))


def _require(code: int, topic: str, message: str | None) -> None:
    if code:
        raise KafkaError(f"topic {topic}: {message or for_code(code).__name__}")
