"""Who gets which partitions: every member its share of each lane.

Plain assignors look at partition numbers only: one worker may get all of the interactive lane, and another none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from services.chassis.kafka.types import TopicPartition

Lanes = Sequence[Sequence[int]]
"""A topic's partition lists, highest lane first."""

NAME = "headway-lanes"
VERSION = 0


def share(members: Iterable[str], lanes: Lanes) -> dict[str, list[int]]:
    """Deals each lane's partitions out to the members, in sorted order.

    Within a lane two members differ by at most one partition. Each lane begins with the member after the last one
    served, so that they differ by at most one over all lanes, too.
    """
    names = sorted(members)
    shares: dict[str, list[int]] = {name: [] for name in names}
    if names:
        for turn, partition in enumerate(partition for lane in lanes for partition in lane):
            shares[names[turn % len(names)]].append(partition)
    return shares


def share_range(members: Iterable[str], partitions: Iterable[int]) -> dict[str, list[int]]:
    """Cuts the partitions into runs of equal length, the first ones longer by one where they do not divide."""
    names, numbers = sorted(members), sorted(partitions)
    cuts = [-(-len(numbers) * i // len(names)) for i in range(len(names) + 1)] if names else []
    return {name: numbers[cuts[i] : cuts[i + 1]] for i, name in enumerate(names)}


def assign(
    subscriptions: Mapping[str, Iterable[str]], partitions: Mapping[str, Iterable[int]], lanes: Mapping[str, Lanes]
) -> dict[str, list[TopicPartition]]:
    """Every partition of every subscribed topic to one of the members that subscribe to it.

    `subscriptions` holds the topics of each member, `partitions` the partitions of each topic that exists. Partitions
    outside every lane (a topic that has grown, or has no lanes) are shared by range.
    """
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = [member for member, topics in subscriptions.items() if topic in topics]
        laned, rest = _split(partitions.get(topic, ()), lanes.get(topic, ()))
        for shares in (share(members, laned), share_range(members, rest)):
            for member, numbers in shares.items():
                assignment[member].extend(TopicPartition(topic, number) for number in numbers)
    return assignment


def _split(partitions: Iterable[int], lanes: Lanes) -> tuple[list[list[int]], set[int]]:
    """The lanes' partitions that exist, each once, and what is in no lane."""
    rest = set(partitions)
    laned: list[list[int]] = []
    for lane in lanes:
        laned.append([number for number in dict.fromkeys(lane) if number in rest])
        rest.difference_update(lane)
    return laned, rest


def lane_assignor(lanes: Mapping[str, Lanes]) -> type[AbstractPartitionAssignor]:
    """An assignor class for one consumer. aiokafka keeps an assignor's state in its class: never share one."""

    class LaneAssignor(_LaneAssignor):
        lanes_by_topic = lanes

    return LaneAssignor


class _LaneAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka ships no types
    name: ClassVar[str] = NAME
    lanes_by_topic: ClassVar[Mapping[str, Lanes]] = {}

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Called on the group's leader: its lanes count for all members."""
        subscriptions = {member: set(metadata.subscription) for member, metadata in members.items()}
        topics = {topic for subscribed in subscriptions.values() for topic in subscribed}
        partitions = {topic: cluster.partitions_for_topic(topic) or () for topic in topics}
        assignment = assign(subscriptions, partitions, cls.lanes_by_topic)
        return {member: _encoded(owned) for member, owned in assignment.items()}

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member tells the leader."""
        return ConsumerProtocolMemberMetadata(VERSION, sorted(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Nothing is remembered: rebalances are eager."""


def _encoded(owned: Iterable[TopicPartition]) -> ConsumerProtocolMemberAssignment:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in owned:
        by_topic.setdefault(topic, []).append(partition)
    return ConsumerProtocolMemberAssignment(VERSION, sorted(by_topic.items()), b"")
