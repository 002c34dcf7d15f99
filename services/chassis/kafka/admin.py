"""What operators do to a broker: create and reconcile topics, and look at lag. Used by the CLI and by tests."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Target
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError as ClientError
from aiokafka.errors import TopicAlreadyExistsError, for_code

from schemas.topics import Topic
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import KafkaError, TopicPartition

TIMEOUT_S = 30.0
RETRY_S = 0.1
SET_ON_TOPIC = 1
"""The config source of a setting made on the topic itself."""


class TopicError(KafkaError):
    """A topic that cannot be made what it should be without losing data; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One thing that `reconcile` did, or would do: `create`, `grow` or `set`."""

    topic: str
    action: str
    detail: str


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is. `settings` are the values in force, `overrides` the names set on the topic itself."""

    partitions: int
    settings: Mapping[str, str]
    overrides: frozenset[str]


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
        self, topics: Iterable[Topic], replication_factor: int, *, dry_run: bool = False
    ) -> list[TopicChange]:
        """Makes the broker's topics what they should be: creates, grows, sets. Returns what it did (or would do).

        A longer retention than asked for is kept. Raises TopicError, before anything is changed, where that would
        lose data: fewer partitions, other partitions for a topic keyed by run, another clean-up policy.
        """
        wanted = {self._connection.topic(topic.name): topic for topic in topics}
        states = await self.describe(topic.name for topic in wanted.values())
        plans = [_plan(topic, states.get(topic.name), replication_factor) for topic in wanted.values()]
        if not dry_run:
            for plan in plans:
                await self._apply(plan, replication_factor)
            await self.wait_for_leaders({topic.name: topic.partitions for topic in wanted.values()})
        return [change for plan in plans for change in plan.changes()]

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """The topics among these that exist."""
        partitions = await self._partitions()
        existing = [name for name in topics if self._connection.topic(name) in partitions]
        if not existing:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, self._connection.topic(name)) for name in existing]
        responses = await self._answer(lambda: self._client.describe_configs(resources))
        entries = {}
        for code, message, _, topic, settings in (found for answer in responses for found in answer.resources):
            _require(code, topic, message)
            entries[topic] = settings
        return {name: _state(partitions[full], entries[full]) for name, full in self._full(existing)}

    async def wait_for_leaders(self, partitions: Mapping[str, int]) -> None:
        """Returns when every partition of these topics answers. `partitions` are the counts by topic.

        Right after a topic is created its partitions answer NotLeaderForPartition for a moment.
        """
        await self._ends(
            [TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)]
        )

    async def lag(self, group: str, topics: Collection[str]) -> dict[TopicPartition, Lag]:
        """Committed and end offsets of a group, for each partition of those topics that exist."""
        counts = await self._partitions()
        partitions = [
            TopicPartition(name, number) for name, full in self._full(topics) for number in range(counts.get(full, 0))
        ]
        if not partitions:
            return {}
        targets = [self._target(tp) for tp in partitions]
        name = self._connection.group(group)
        found = await self._answer(lambda: self._client.list_consumer_group_offsets(name, partitions=targets))
        # -1, or left out where the coordinator has not heard of the topic yet: no commit.
        committed = {target: commit.offset for target, commit in found.items() if commit.offset >= 0}
        ends = await self._ends(partitions)
        return {tp: Lag(committed.get(target), ends[tp]) for tp, target in zip(partitions, targets, strict=True)}

    async def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Deletes every record below these offsets, for good: Kafka removes nothing but the beginning of a partition.

        Raises KafkaError, also for an offset past the end.
        """
        wanted = {self._target(tp): RecordsToDelete(offset) for tp, offset in offsets.items()}
        await self._answer(lambda: self._client.delete_records(wanted))

    async def _apply(self, plan: "_Plan", replication_factor: int) -> None:
        name = self._connection.topic(plan.topic.name)
        if plan.create:
            await self._create(name, plan, replication_factor)
        if plan.grow:
            grown = {name: NewPartitions(plan.topic.partitions)}
            await self._answer(lambda: self._client.create_partitions(grown))
        if plan.wrong:
            # This replaces every setting of the topic: those of others are sent again.
            resource = ConfigResource(ConfigResourceType.TOPIC, name, {**plan.kept, **plan.wrong})
            for answer in await self._answer(lambda: self._client.alter_configs([resource])):
                for code, message, *_ in answer.resources:
                    _require(code, name, message)

    async def _create(self, name: str, plan: "_Plan", replication_factor: int) -> None:
        new = NewTopic(name, plan.topic.partitions, replication_factor, topic_configs=dict(plan.settings))
        answer = await self._answer(lambda: self._client.create_topics([new]))
        for _, code, message in answer.topic_errors:
            # Another instance may have been faster.
            if for_code(code) is not TopicAlreadyExistsError:
                _require(code, name, message)

    async def _partitions(self) -> dict[str, int]:
        """Of every topic: to ask for one by name could create it, where auto-creation is on."""
        found = await self._answer(lambda: self._client.describe_topics(None))
        return {topic["topic"]: len(topic["partitions"]) for topic in found}

    async def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        targets = [self._target(tp) for tp in partitions]
        ends = await self._answer(lambda: self._reader.end_offsets(targets))
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
        return [(name, self._connection.topic(name)) for name in topics]

    def _target(self, tp: TopicPartition) -> Target:
        return Target(self._connection.topic(tp.topic), tp.partition)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one topic needs."""

    topic: Topic
    settings: Mapping[str, str]
    create: bool = False
    grow: int = 0
    """Partitions it has now, when it must get more."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    was: Mapping[str, str] = field(default_factory=dict)

    def changes(self) -> list[TopicChange]:
        name = self.topic.name
        if self.create:
            return [TopicChange(name, "create", f"{self.topic.partitions} partitions")]
        changes = [
            TopicChange(name, "set", f"{setting}: {self.was.get(setting)} -> {value}")
            for setting, value in self.wrong.items()
        ]
        if self.grow:
            changes.insert(0, TopicChange(name, "grow", f"{self.grow} -> {self.topic.partitions} partitions"))
        return changes


def _plan(topic: Topic, state: TopicState | None, replication_factor: int) -> _Plan:
    settings = dict(topic.settings)
    if replication_factor >= 3:
        settings["min.insync.replicas"] = "2"
    if state is None:
        return _Plan(topic, settings, create=True)
    _refuse_loss(topic, state, settings)
    wrong = {name: value for name, value in settings.items() if not _satisfies(name, state.settings.get(name), value)}
    return _Plan(
        topic,
        settings,
        grow=state.partitions if state.partitions < topic.partitions else 0,
        wrong=wrong,
        kept={name: state.settings[name] for name in state.overrides},
        was=state.settings,
    )


def _refuse_loss(topic: Topic, state: TopicState, settings: Mapping[str, str]) -> None:
    policy, wanted = state.settings.get("cleanup.policy"), settings["cleanup.policy"]
    if policy != wanted:
        raise TopicError(
            f"topic {topic.name} has cleanup.policy={policy}, it must be {wanted}: changing it would delete records"
        )
    if topic.keyed_by_run and state.partitions != topic.partitions:
        raise TopicError(
            f"topic {topic.name} has {state.partitions} partitions, {topic.partitions} are asked for: it is keyed by"
            " run id and can never change, a run's records would part"
        )
    if state.partitions > topic.partitions:
        raise TopicError(
            f"topic {topic.name} has {state.partitions} partitions, {topic.partitions} are asked for: partitions"
            " cannot be removed without losing records; create a topic of another name"
        )


def _satisfies(name: str, value: str | None, wanted: str) -> bool:
    """Whether a value in force will do; a longer retention will."""
    if name == "retention.ms" and value is not None:
        return value == "-1" or int(value) >= int(wanted)
    return value == wanted


def _state(partitions: int, entries: Iterable[Sequence[Any]]) -> TopicState:
    """From the entries (name, value, read only, source, sensitive, …) of a description."""
    settings, overrides = {}, set()
    for name, value, _, source, *_ in entries:
        settings[name] = value
        if source == SET_ON_TOPIC:
            overrides.add(name)
    return TopicState(partitions, settings, frozenset(overrides))


def _require(code: int, topic: str, message: str | None) -> None:
    if code:
        raise KafkaError(f"topic {topic}: {message or for_code(code).__name__}")
