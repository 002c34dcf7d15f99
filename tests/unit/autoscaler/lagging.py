"""A broker in this process, a plane's groups on it, and the collector that looks at them. Time is the test's."""

import contextlib
from collections.abc import Callable, Collection, Mapping

from schemas.config import Bundle, Tenant
from schemas.models import Backend, ModelClass, Queue, Scaling, SimulatedEngine
from schemas.topics import EVENTS, JOINS, REQUESTS
from services.autoscaler.collector import Collector
from services.autoscaler.domain.watched import Watched
from services.chassis.clock import LogClock
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.in_memory_offsets import InMemoryOffsetReader
from services.chassis.kafka.offsets import Standings
from services.chassis.kafka.types import Commit, KafkaError, Outgoing, TopicPartition

BEGAN_MS = 1_700_000_000_000


def bundle(*model_classes: str, ingress: tuple[str, ...] = (), scaling: Scaling | None = None) -> Bundle:
    backend = Backend(name="local", engine=SimulatedEngine(kind="simulated"))
    tenants = {"acme": Tenant(ingress_topics=ingress)} if ingress else {}
    model_class = ModelClass(backends=(backend,), scaling=scaling or Scaling())
    return Bundle(model_classes=dict.fromkeys(model_classes, model_class), tenants=tenants)


class Broker(InMemoryOffsetReader):
    """May be away, or unable to tell of a partition. Counts the records that were read."""

    def __init__(self, kafka: InMemoryKafka) -> None:
        super().__init__(kafka)
        self.away = False
        self.silent: set[TopicPartition] = set()
        self.stamps_read = 0

    async def read(self, groups: Mapping[str, Collection[str]]) -> Standings:
        if self.away:
            raise KafkaError("no answer")
        found = await super().read(groups)
        return {
            group: {tp: None if tp in self.silent else at for tp, at in of_group.items()}
            for group, of_group in found.items()
        }

    async def stamps(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self.stamps_read += len(positions)
        return await super().stamps(positions)


class _OverError(Exception):
    """Ends a run."""


class Lagging:
    """The class `llm`, and the plane's own topics."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.kafka = InMemoryKafka(clock=self.now_ms)
        for topic in (REQUESTS, EVENTS, JOINS):
            self.kafka.create_topic(topic, 2)
        self.kafka.create_topic("inference-tasks-llm", 10)
        self.clock = LogClock(lambda: self.now_s)
        self.clock.observe(self.now_ms())
        self.broker = Broker(self.kafka)
        self.collector = Collector(self.broker, self.clock, lambda: self.now_s, self._sleep)
        self.collector.watch(Watched.of(bundle("llm")))
        self._seen: list[tuple[float, bool]] = []
        self._over: Callable[[float], bool] = lambda _: True

    @property
    def queue(self) -> Queue:
        """The queue of `llm`."""
        return Watched.of(bundle("llm")).queues[0]

    def now_ms(self) -> int:
        return BEGAN_MS + int(self.now_s * 1_000)

    async def look_for(self, seconds: int) -> None:
        """So many looks, a second before each."""
        for _ in range(seconds):
            self.now_s += 1
            await self.collector.sample()

    async def run_until(self, over: Callable[[float], bool]) -> list[tuple[float, bool]]:
        """Runs the component; after each look it tells the time, and whether a lag is known then."""
        self._over = over
        with contextlib.suppress(_OverError):
            await self.collector.run()
        return self._seen

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._seen.append((self.now_s, self.collector.why_not_ready() is None))
        if self._over(self.now_s):
            raise _OverError

    def publish(self, partition: int, tasks: int = 1, topic: str = "inference-tasks-llm") -> None:
        for _ in range(tasks):
            self.kafka.append(TopicPartition(topic, partition), Outgoing(topic, b"{}"))

    def commit(
        self, partition: int, offset: int, group: str = "headway-worker-llm", topic: str | None = None
    ) -> None:
        tp = TopicPartition(topic or "inference-tasks-llm", partition)
        self.kafka.group(group).commits[tp] = Commit(offset)
