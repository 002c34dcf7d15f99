"""How far behind each lane of each task topic is, over time. Looking changes nothing: it joins no group."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from headway.cli.live import read_applied
from headway.cli.logs import open_logs
from schemas.base import Priority
from schemas.models import Queue, queues
from services.chassis.kafka.connection import Connection

EVERY_S = 0.5
MAX_SAMPLES = 600
"""Past them every other sample is dropped, and from then on samples are taken half as often."""


class Commits(Protocol):
    """What is asked of an admin client."""

    async def list_consumer_group_offsets(
        self, group: str, partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, Any]: ...


class Ends(Protocol):
    """What is asked of a consumer."""

    async def end_offsets(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]: ...


class LagSeries:
    """Tasks behind by lane, at moments in seconds; a bounded number of them."""

    def __init__(self) -> None:
        self.every_s = EVERY_S
        self._at_s: list[float] = []
        self._behind: list[Mapping[str, int]] = []

    def add(self, at_s: float, behind: Mapping[str, int]) -> None:
        """One sample, by lane."""
        self._at_s.append(round(at_s, 2))
        self._behind.append(behind)
        if len(self._at_s) > MAX_SAMPLES:
            self.every_s *= 2
            del self._at_s[1::2], self._behind[1::2]

    def as_json(self) -> dict[str, Any]:
        """`at_s`, and `tasks` by lane: those that were ever behind."""
        lanes = sorted({lane for sample in self._behind for lane, tasks in sample.items() if tasks})
        return {"at_s": self._at_s, "tasks": {lane: [at.get(lane, 0) for at in self._behind] for lane in lanes}}


@asynccontextmanager
async def following_lags(bootstrap: str) -> AsyncIterator[Callable[[], LagSeries]]:
    """Samples while it is entered; the function begins a new series, and gives it."""
    followed = await _queues(bootstrap)
    admin, reader = AIOKafkaAdminClient(bootstrap_servers=bootstrap), AIOKafkaConsumer(bootstrap_servers=bootstrap)
    sampler = _Sampler(followed, admin, reader)
    async with contextlib.AsyncExitStack() as stack:
        await admin.start()
        stack.push_async_callback(admin.close)
        await stack.enter_async_context(reader)
        sampling = asyncio.create_task(sampler.run())
        try:
            yield sampler.begin
        finally:
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampling


class _Sampler:
    def __init__(self, queues: Collection[Queue], admin: AIOKafkaAdminClient, reader: AIOKafkaConsumer) -> None:
        self._queues = queues
        self._admin = admin
        self._reader = reader
        self.begin()

    def begin(self) -> LagSeries:
        self._series, self._began = LagSeries(), time.monotonic()
        return self._series

    async def run(self) -> None:
        """Until cancelled. A broker that is away is a gap, no error."""
        while True:
            with contextlib.suppress(KafkaError):
                at_s, behind = (
                    time.monotonic() - self._began,
                    await behind_by_lane(self._queues, self._admin, self._reader),
                )
                self._series.add(at_s, behind)
            await asyncio.sleep(self._series.every_s)


async def behind_by_lane(queues: Collection[Queue], admin: Commits, reader: Ends) -> dict[str, int]:
    """Tasks that are appended, but not committed. Committed offsets come first: an end read later is never below."""
    committed: dict[TopicPartition, int] = {}
    for queue in queues:
        found = await admin.list_consumer_group_offsets(queue.group, partitions=_partitions(queue))
        committed.update({partition: commit.offset for partition, commit in found.items()})
    ends = await reader.end_offsets([partition for queue in queues for partition in _partitions(queue)])
    behind = {partition: end - max(0, committed.get(partition, 0)) for partition, end in ends.items()}
    return {name: tasks for queue in queues for name, tasks in _lanes(queue, behind)}


def _lanes(queue: Queue, behind: Mapping[TopicPartition, int]) -> list[tuple[str, int]]:
    """`quick interactive`, and the tasks behind in its partitions."""
    return [
        (f"{queue.label} {lane.value}", sum(behind[TopicPartition(queue.topic, n)] for n in queue.lanes.of(lane)))
        for lane in Priority
    ]


def _partitions(queue: Queue) -> list[TopicPartition]:
    return [TopicPartition(queue.topic, number) for number in range(queue.lanes.count)]


async def _queues(bootstrap: str) -> Collection[Queue]:
    """Those of the configuration in force."""
    async with open_logs(Connection(bootstrap, client_id="loadtest")) as logs:
        return list(queues((await read_applied(logs)).bundle.model_classes))
