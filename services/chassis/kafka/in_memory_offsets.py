"""The twin of the offset reader, over the broker in this process."""

from collections.abc import Collection, Mapping

from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.offsets import Offsets, Standings
from services.chassis.kafka.types import KafkaError, TopicPartition


class InMemoryOffsetReader:
    """Always answers, but of topics that exist."""

    def __init__(self, kafka: InMemoryKafka) -> None:
        self._kafka = kafka

    async def read(self, groups: Mapping[str, Collection[str]]) -> Standings:
        found = {group: self._of(group, topics) for group, topics in groups.items()}
        if not any(found.values()):
            raise KafkaError("none of the topics exists")
        return found

    async def stamps(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {
            tp: self._kafka.log(tp)[offset].timestamp
            for tp, offset in positions.items()
            if offset < len(self._kafka.log(tp))
        }

    def _of(self, group: str, topics: Collection[str]) -> dict[TopicPartition, Offsets]:
        commits = self._kafka.group(group).commits
        return {
            tp: Offsets(0, commits[tp].offset if tp in commits else None, len(self._kafka.log(tp)))
            for topic in topics
            for tp in self._partitions(topic)
        }

    def _partitions(self, topic: str) -> list[TopicPartition]:
        try:
            return [TopicPartition(topic, number) for number in self._kafka.partitions(topic)]
        except KafkaError:
            return []
