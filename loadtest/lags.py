"""How far behind each lane of each task topic is, over time. Looking changes nothing: it joins no group."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from headway.cli.live import read_applied
from headway.cli.logs import open_logs
from schemas.base import Priority
from schemas.models import Queue, queues
from services.autoscaler.domain.backlog import next_to_do
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.offsets import KafkaOffsetReader, OffsetReader, Standings
from services.chassis.kafka.types import KafkaError, TopicPartition

EVERY_S = 0.5
MAX_SAMPLES = 600
"""Past them every other sample is dropped, and from then on samples are taken half as often."""


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
    async with KafkaOffsetReader(_connection(bootstrap)) as reader:
        sampler = _Sampler(followed, reader)
        sampling = asyncio.create_task(sampler.run())
        try:
            yield sampler.begin
        finally:
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampling


class _Sampler:
    def __init__(self, queues: Collection[Queue], reader: OffsetReader) -> None:
        self._queues = queues
        self._reader = reader
        self.begin()

    def begin(self) -> LagSeries:
        self._series, self._began = LagSeries(), time.monotonic()
        return self._series

    async def run(self) -> None:
        """Until cancelled. A broker that is away is a gap, no error."""
        while True:
            with contextlib.suppress(KafkaError):
                at_s = time.monotonic() - self._began
                self._series.add(at_s, await behind_by_lane(self._queues, self._reader))
            await asyncio.sleep(self._series.every_s)


async def behind_by_lane(queues: Collection[Queue], reader: OffsetReader) -> dict[str, int]:
    """Tasks that are appended, but not committed: `quick interactive`, and its tasks.

    Raises KafkaError when not all of it can be read.
    """
    groups = await reader.read({queue.group: (queue.topic,) for queue in queues})
    return {
        f"{queue.label} {lane.value}": sum(_behind(groups, queue, number) for number in queue.lanes.of(lane))
        for queue in queues
        for lane in Priority
    }


def _behind(groups: Standings, queue: Queue, number: int) -> int:
    at = groups.get(queue.group, {}).get(TopicPartition(queue.topic, number))
    position = at and next_to_do(*at)
    if at is None or position is None:
        raise KafkaError(f"nobody says how far {queue.label} is in partition {number}")
    return at.end - position


async def _queues(bootstrap: str) -> Collection[Queue]:
    """Those of the configuration in force."""
    async with open_logs(_connection(bootstrap)) as logs:
        return list(queues((await read_applied(logs)).bundle.model_classes))


def _connection(bootstrap: str) -> Connection:
    return Connection(bootstrap, client_id="loadtest")
