"""What a topic needs to become what it should be, and what is refused because it would lose data. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.topics import PARTITIONS, Topic
from services.chassis.kafka.types import KafkaError

PRODUCTION_REPLICATION = 3
"""From so many copies on a record is acknowledged by two: one broker may be lost at any time."""
OFFSETS = "__consumer_offsets"
"""Kafka's own topic of commits: what is lost there is done again."""
_SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


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
    replication: int
    """Copies of the partition that has the fewest."""
    settings: Mapping[str, str]
    overrides: frozenset[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one topic needs."""

    name: str
    partitions: int
    settings: Mapping[str, str]
    create: bool = False
    grow: int = 0
    """Partitions it has now, when it must get more."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    was: Mapping[str, str] = field(default_factory=dict)

    def changes(self) -> list[TopicChange]:
        if self.create:
            return [TopicChange(self.name, "create", f"{self.partitions} partitions")]
        changes = [
            TopicChange(self.name, "set", f"{setting}: {self.was.get(setting)} -> {value}")
            for setting, value in self.wrong.items()
        ]
        if self.grow:
            changes.insert(0, TopicChange(self.name, "grow", f"{self.grow} -> {self.partitions} partitions"))
        return changes


def plan(topic: Topic, state: TopicState | None, replication_factor: int, partitions: int | None = None) -> Plan:
    """For one of our topics. `partitions` are asked for where it has no number of its own. Raises TopicError."""
    count = topic.partitions or partitions or (state.partitions if state else PARTITIONS)
    settings = dict(topic.settings)
    if replication_factor >= PRODUCTION_REPLICATION:
        settings |= _SAFE
    if state is None:
        return Plan(topic.name, count, settings, create=True)
    _refuse_loss(topic, state, settings, count)
    _refuse_thin(topic.name, state, replication_factor)
    grow = state.partitions if state.partitions < count else 0
    return _change(topic.name, count, settings, state, grow)


def plan_offsets(state: TopicState | None, default_replication: int, replication_factor: int) -> list[Plan]:
    """For Kafka's own topic of commits, in production. Raises TopicError.

    `default_replication` is what the brokers would create it with.
    """
    if state is not None:
        _refuse_thin(OFFSETS, state, replication_factor)
        return [_change(OFFSETS, state.partitions, _SAFE, state)]
    if default_replication < replication_factor:
        raise TopicError(
            f"topic {OFFSETS} is not there yet, and would be made with replication {default_replication}:"
            f" set offsets.topic.replication.factor={replication_factor} on every broker"
        )
    return []


def _change(name: str, partitions: int, settings: Mapping[str, str], state: TopicState, grow: int = 0) -> Plan:
    found = state.settings
    return Plan(
        name,
        partitions,
        settings,
        grow=grow,
        wrong={key: value for key, value in settings.items() if not _satisfies(key, found.get(key), value)},
        kept={key: found[key] for key in state.overrides},
        was=found,
    )


def _refuse_thin(name: str, state: TopicState, replication_factor: int) -> None:
    if state.replication < replication_factor:
        raise TopicError(
            f"topic {name} has replication {state.replication}, {replication_factor} is asked for: add copies with"
            " kafka-reassign-partitions.sh, which moves data and is for a person to plan; or set"
            " HEADWAY_KAFKA_REPLICATION_FACTOR to what is there"
        )


def _refuse_loss(topic: Topic, state: TopicState, settings: Mapping[str, str], count: int) -> None:
    policy, wanted = state.settings.get("cleanup.policy"), settings["cleanup.policy"]
    if policy != wanted:
        raise TopicError(
            f"topic {topic.name} has cleanup.policy={policy}, it must be {wanted}: changing it would delete records"
        )
    if topic.keyed_by_run and state.partitions != count:
        raise TopicError(
            f"topic {topic.name} has {state.partitions} partitions, {count} are asked for: it is keyed by"
            " run id and can never change, a run's records would part"
        )
    if state.partitions > count:
        raise TopicError(
            f"topic {topic.name} has {state.partitions} partitions, {count} are asked for: partitions"
            " cannot be removed without losing records; create a topic of another name"
        )


def _satisfies(name: str, value: str | None, wanted: str) -> bool:
    """Whether a value in force will do; a longer retention will."""
    if name == "retention.ms" and value is not None:
        return value == "-1" or int(value) >= int(wanted)
    return value == wanted
