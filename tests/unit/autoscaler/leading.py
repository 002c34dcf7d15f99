"""Autoscalers on a broker in this process, with hosts and workers that only say what they are. Time is the test's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from schemas.fleet import (
    FLEET,
    Capacity,
    FleetMessage,
    FleetStatus,
    HostStatus,
    Placement,
    ScalingDecision,
    ServiceStatus,
    WorkerStatus,
)
from schemas.models import Scaling
from schemas.topics import EVENTS
from schemas.topics import FLEET as FLEET_TOPIC
from services.autoscaler.domain.watched import Watched
from services.autoscaler.leadership import MEMBERSHIP, Leadership
from services.autoscaler.memory import Memory
from services.autoscaler.observer import HEARD_FOR_S, Observer
from services.autoscaler.scaler import Scaler, Surroundings
from services.chassis.fleet import FleetView, status_record
from services.chassis.kafka.in_memory import InMemoryConsumer
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.types import ConsumerSettings, RebalanceListener, TopicPartition
from tests.unit.autoscaler.lagging import Lagging, bundle

DEADLINE_S = 20.0
LOOK_EVERY_S = 0.02
ROOM = Capacity(cpu=16, memory=64 << 30)
PARTITIONS = dict.fromkeys(range(10), 0)


class Fleet(Lagging):
    """The class `llm`, and what is said on the fleet topic."""

    def __init__(self, memory: Path = Path("/dev/null/nowhere")) -> None:
        """`memory`: the file in which leaders write down what they have learned; usually none does."""
        super().__init__()
        self.memory = Memory(memory)
        self.kafka.create_topic(FLEET_TOPIC, 1)
        self.autoscalers: list[Autoscaler] = []

    def say(self, *statuses: FleetMessage) -> None:
        """Appends statuses to the fleet topic."""
        for status in statuses:
            self.kafka.append(TopicPartition(FLEET_TOPIC, 0), status_record(status))

    def said(self) -> list[FleetStatus]:
        """All that was ever said."""
        return [FLEET.validate_json(record.value or b"") for record in self.kafka.records(FLEET_TOPIC)]

    def placements(self, epoch: int | None = None) -> list[Placement]:
        """All of them, or those of one reign."""
        found = [status for status in self.said() if isinstance(status, Placement)]
        return [placement for placement in found if epoch in (None, placement.epoch)]

    def decisions(self) -> list[ScalingDecision]:
        """Of all reigns."""
        return [status for status in self.said() if isinstance(status, ScalingDecision)]

    async def settle(self) -> None:
        """Looks at the lag, for long enough to know rates, and lets everybody be heard."""
        for _ in range(round(HEARD_FOR_S) + 2):
            await self.look_for(1)
            for autoscaler in self.autoscalers:
                autoscaler.hear()

    async def until(self, holds: Callable[[], object]) -> None:
        """Waits for something that autoscalers do by themselves."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds():  # noqa: ASYNC110  nobody says when
                await asyncio.sleep(LOOK_EVERY_S / 2)


class Autoscaler:
    """One process, but for its collector, which all of a test share."""

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        *,
        scaling: Scaling | None = None,
        places: bool = True,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self.name = name
        self._fleet = fleet
        self._heard = 0
        self.consumer: InMemoryConsumer | None = None
        producer = fleet.kafka.producer()
        self.observer = Observer(name, fleet.collector, FleetView(fleet.clock), fleet.clock)
        around = Surroundings(
            name, fleet.clock, producer, self.observer, self._events, fleet.memory,
            places=places, look_every_s=look_every_s,
        )  # fmt: skip
        self.scaler = Scaler(around)
        self.scaler.watch(Watched.of(bundle("llm", scaling=scaling)))
        self.leadership = Leadership(self._member, producer, fleet.clock, name, self.scaler.lead)
        fleet.autoscalers.append(self)

    def joins_later(self) -> None:
        """Has not read what was said so far."""
        self._heard = len(self._fleet.kafka.records(FLEET_TOPIC))

    def hear(self) -> None:
        """Says that it lives, and hears everything that was said."""
        self._fleet.say(ServiceStatus(instance=self.name, service="autoscaler"))
        records = self._fleet.kafka.records(FLEET_TOPIC)
        self.observer.add(records[self._heard :])
        self._heard = len(records)

    @property
    def leads(self) -> bool:
        """Whether it does now."""
        return self.scaler.control is not None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A member of the group."""
        task = asyncio.create_task(self.leadership.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()

    def _member(self, listener: RebalanceListener) -> InMemoryConsumer:
        self.consumer = self._fleet.kafka.consumer(MEMBERSHIP, listener)
        return self.consumer

    @asynccontextmanager
    async def _events(self, tail: int) -> AsyncIterator[LogReader]:
        settings = ConsumerSettings(None, (EVENTS,))
        reader = LogReader(lambda listener: self._fleet.kafka.consumer(settings, listener), tail=tail)
        await reader.start()
        yield reader
        await reader.stop()


def host(
    name: str = "h", *, failing: Sequence[str] = (), capacity: Capacity | None = ROOM, **workers: int
) -> HostStatus:
    """A host that keeps so many workers, none of them ready."""
    return HostStatus(instance=name, workers=workers, capacity=capacity, failing=tuple(failing))


def worker(name: str, on: str = "h", **changes: object) -> WorkerStatus:
    """A warm worker of `llm` that owns all of its queue, unless told otherwise."""
    usual = WorkerStatus(
        instance=name,
        host=on,
        model_class="llm",
        backend="local",
        state="warm",
        slots=4,
        busy=0,
        committed=PARTITIONS,
    )
    return usual.model_copy(update=changes)
