"""Looks every second how far behind every group is. Also what `headway lag` looks with, once or again and again."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from schemas.base import Priority
from schemas.models import Queue
from services.autoscaler.domain.arrivals import Arrivals
from services.autoscaler.domain.backlog import UNKNOWN, Behind, behind, by_lane, next_to_do, together
from services.autoscaler.domain.observation import LaneSeen
from services.autoscaler.domain.rates import arrivals_per_s, long_ms
from services.autoscaler.domain.watched import NOTHING, Watched
from services.chassis.clock import LogClock
from services.chassis.kafka.connection import PATIENCE_S
from services.chassis.kafka.offsets import OffsetReader, Offsets
from services.chassis.kafka.types import KafkaError, TopicPartition
from services.chassis.logging import log

EVERY_S = 1.0
FRESH_S = 4.0
"""What was seen longer ago is not told any more: by then the lag is another one."""


class PartitionLag(NamedTuple):
    """Of one group in one partition."""

    offsets: Offsets | None
    behind: Behind


class Sample(NamedTuple):
    """What was seen at one moment. What could not be read is unknown or not there."""

    watched: Watched = NOTHING
    groups: Mapping[str, Mapping[TopicPartition, PartitionLag]] = MappingProxyType({})
    rates: Mapping[str, Mapping[Priority, float]] = MappingProxyType({})
    """Tasks that arrive a second, by queue label and lane."""

    def seen(self, queue: Queue) -> Mapping[Priority, LaneSeen]:
        """What the analyzer is told of a queue's lanes."""
        rates = self.rates.get(queue.label, {})
        return {lane: LaneSeen(rates.get(lane), behind.tasks) for lane, behind in self.lanes(queue).items()}

    def lanes(self, queue: Queue) -> Mapping[Priority, Behind]:
        """How far behind each lane of a queue is."""
        found = self.groups.get(queue.group, {})
        return by_lane(queue, {tp.partition: lag.behind for tp, lag in found.items()})

    def watermark_ages_s(self) -> Mapping[str, float]:
        """The age of the oldest record that each service has not committed, where all of its groups are known."""
        ages = {service: self._age_s(groups) for service, groups in self.watched.services.items()}
        return {service: age for service, age in ages.items() if age is not None}

    def _age_s(self, groups: Collection[str]) -> float | None:
        found = [self.groups.get(group) for group in groups]
        if not found or not all(found):
            return None
        return together([lag.behind for of_group in found if of_group for lag in of_group.values()]).seconds


class Collector:
    """Keeps the last sample, and what it takes to tell ages from one sample to the next."""

    def __init__(
        self,
        reader: OffsetReader,
        clock: LogClock,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._watched = NOTHING
        self._arrivals: dict[TopicPartition, Arrivals] = {}
        self._sample = Sample()
        self._sampled_at: float | None = None

    def watch(self, watched: Watched) -> None:
        """Takes another configuration's topics, from the next sample on."""
        self._watched = watched

    def fresh(self) -> Sample:
        """The last sample, unless it is older than 4 s: then an empty one."""
        return Sample() if self.why_not_ready() else self._sample

    @property
    def has_looked(self) -> bool:
        """Whether there ever was a sample."""
        return self._sampled_at is not None

    def why_not_ready(self) -> str | None:
        """For readiness."""
        at = self._sampled_at
        return None if at is not None and self._monotonic() - at <= FRESH_S else "the lag cannot be read"

    async def run(self) -> None:
        """A component. Raises KafkaError when nothing could be read for 25 s: another start connects anew."""
        seen_at, missing = self._monotonic(), False
        while True:
            began = self._monotonic()
            try:
                await self.sample()
            except KafkaError as error:
                if began - seen_at > PATIENCE_S:
                    raise KafkaError(f"no lag could be read for {PATIENCE_S:.0f} s") from error
                if not missing:
                    log.warning("lag_unreadable", exc_info=error)
                missing = True
            else:
                seen_at, missing = began, False
            await self._sleep(max(0.0, EVERY_S - (self._monotonic() - began)))

    async def sample(self) -> Sample:
        """Looks now. Raises KafkaError when nothing can be read; what only in part can is left out."""
        watched, at_ms = self._watched, self._clock.now_ms()
        offsets = await self._reader.read(watched.groups)
        known = {tp: at for found in offsets.values() for tp, at in found.items() if at is not None}
        self._observe(known, at_ms)
        await self._read_stamps(known)
        now_ms = self._clock.now_ms()
        self._sample = Sample(
            watched,
            {
                group: {tp: PartitionLag(at, self._behind(tp, at, now_ms)) for tp, at in found.items()}
                for group, found in offsets.items()
            },
            {queue.label: self._rates(queue) for queue in watched.queues},
        )
        self._sampled_at = self._monotonic()
        return self._sample

    def _observe(self, known: Mapping[TopicPartition, Offsets], at_ms: int | None) -> None:
        self._arrivals = {tp: self._arrivals.get(tp) or Arrivals() for tp in known}
        if at_ms is not None:
            for tp, at in known.items():
                self._arrivals[tp].observe(at.end, at_ms)

    def _rates(self, queue: Queue) -> Mapping[Priority, float]:
        window_ms = long_ms(queue.scaling.cooldown)
        rates = {
            lane: self._rate([TopicPartition(queue.topic, n) for n in queue.lanes.of(lane)], window_ms)
            for lane in Priority
        }
        return {lane: rate for lane, rate in rates.items() if rate is not None}

    def _rate(self, partitions: Collection[TopicPartition], window_ms: int) -> float | None:
        seen = [self._arrivals[tp] for tp in partitions if tp in self._arrivals]
        return arrivals_per_s(seen, window_ms) if len(seen) == len(partitions) else None

    async def _read_stamps(self, known: Mapping[TopicPartition, Offsets]) -> None:
        """Of the oldest records that came while nobody looked."""
        oldest = {tp: position for tp, at in known.items() if (position := next_to_do(*at)) not in (None, at.end)}
        unknown = {tp: position for tp, position in oldest.items() if self._arrivals[tp].stamp_of(position) is None}
        if unknown:
            for tp, stamp in (await self._reader.stamps(unknown)).items():
                self._arrivals[tp].learn(unknown[tp], stamp)

    def _behind(self, tp: TopicPartition, at: Offsets | None, now_ms: int | None) -> Behind:
        position = None if at is None else next_to_do(*at)
        if at is None or position is None:
            return UNKNOWN
        return behind(position, at.end, self._arrivals[tp].stamp_of(position), now_ms)
