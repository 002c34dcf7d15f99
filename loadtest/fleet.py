"""What the fleet says while a scenario runs: what was decided and when, and which workers were warm. By log time."""

import asyncio
import contextlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer
from pydantic import ValidationError

from schemas.fleet import FLEET, FleetStatus, HostStatus, Placement, ScalingDecision, WorkerStatus
from schemas.topics import FLEET as FLEET_TOPIC

POLL_MS = 100


class Listener(Protocol):
    """Whoever wants to know."""

    def hear(self, at_ms: int, status: FleetStatus) -> None:
        """Takes a status, in log order."""


class Said(NamedTuple):
    """A status, and the log time of its record."""

    at_ms: int
    status: FleetStatus


class Span(NamedTuple):
    """A worker that was warm, from its engine's start to the last time it said so."""

    from_ms: int
    to_ms: int


class Level(NamedTuple):
    """So many from then on."""

    at_ms: int
    replicas: int


class Fleet:
    """Everything that was said."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self._changed = asyncio.Event()

    def hear(self, at_ms: int, status: FleetStatus) -> None:
        """Takes a status, in log order."""
        self.said.append(Said(at_ms, status))
        self._changed.set()

    async def until(self, condition: Callable[[Sequence[Said]], bool], timeout_s: float) -> bool:
        """Whether it came true of what was said, in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition(self.said):
                    self._changed.clear()
                    await self._changed.wait()
        return condition(self.said)


@asynccontextmanager
async def listening(bootstrap: str, listener: Listener) -> AsyncIterator[None]:
    """It hears everything that is on the fleet topic, from its beginning on."""
    consumer = AIOKafkaConsumer(
        FLEET_TOPIC, bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    async with consumer:
        task = asyncio.create_task(_listen(consumer, listener))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _listen(consumer: AIOKafkaConsumer, listener: Listener) -> None:
    while True:
        for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
            for record in records:
                with contextlib.suppress(ValidationError):
                    listener.hear(record.timestamp, FLEET.validate_json(record.value or b""))


def decided(said: Iterable[Said]) -> dict[str, list[Level]]:
    """How many warm workers each queue was to have, whenever that changed; of leaders that no later one replaced."""
    levels: defaultdict[str, list[Level]] = defaultdict(list)
    epoch = -1
    for at_ms, status in said:
        if not isinstance(status, ScalingDecision) or status.epoch < epoch:
            continue
        epoch = status.epoch
        of_queue = levels[status.queue]
        if not of_queue or of_queue[-1].replicas != status.replicas:
            of_queue.append(Level(at_ms, status.replicas))
    return dict(levels)


def level(levels: Sequence[Level], at_ms: int) -> int:
    """The one in force; 0 before the first."""
    place = bisect_right(levels, at_ms, key=attrgetter("at_ms"))
    return levels[place - 1].replicas if place else 0


def highest(levels: Sequence[Level], from_ms: int, to_ms: int) -> int:
    """The most that was in force within that time."""
    within = [each.replicas for each in levels if from_ms < each.at_ms < to_ms]
    return max(level(levels, from_ms), *within, 0)


def warm(said: Iterable[Said]) -> dict[str, list[Span]]:
    """By model class, when each of its workers was. One that is killed says nothing of it: it just ends."""
    spans: dict[tuple[str, str], Span] = {}
    for at_ms, status in said:
        if isinstance(status, WorkerStatus) and status.state == "warm" and status.ready_at is not None:
            key = (status.model_class, status.instance)
            spans[key] = Span(spans[key].from_ms if key in spans else status.ready_at, at_ms)
    by_class: defaultdict[str, list[Span]] = defaultdict(list)
    for (model_class, _), span in spans.items():
        by_class[model_class].append(span)
    return dict(by_class)


def warm_at(spans: Iterable[Span], at_ms: int) -> int:
    """How many were."""
    return sum(span.from_ms <= at_ms <= span.to_ms for span in spans)


def placed_ms(said: Iterable[Said], queue: str, from_ms: int) -> int | None:
    """When a host was first told to keep a warm worker of a queue, from then on."""
    placements = ((at_ms, status) for at_ms, status in said if at_ms >= from_ms and isinstance(status, Placement))
    return next((at_ms for at_ms, told in placements if queue in told.queues and told.queues[queue].warm), None)


def is_at_zero(said: Sequence[Said], since_ms: int) -> bool:
    """Whether every host that spoke since then has no worker left."""
    newest: dict[str, HostStatus] = {}
    for at_ms, status in said:
        if at_ms > since_ms and isinstance(status, HostStatus):
            newest[status.instance] = status
    return bool(newest) and not any(any(host.workers.values()) for host in newest.values())
