"""One queue on one worker: its engine, its slots, its loop, and what it says of itself."""

from collections.abc import Callable
from dataclasses import dataclass

from schemas.fleet import WorkerStatus
from schemas.models import Queue
from services.chassis.kafka.types import Consumer, ConsumerSettings, RebalanceListener
from services.chassis.metrics import Metrics
from services.worker.consumption import Consumption, consumer_settings
from services.worker.desk import Desk
from services.worker.domain.engine import Engine
from services.worker.domain.slots import Slots
from services.worker.ended_runs import EndedRuns
from services.worker.engine_life import EngineLife
from services.worker.handlers import Surroundings, TaskHandler
from services.worker.telemetry import Telemetry

ConsumerFactory = Callable[[ConsumerSettings, RebalanceListener], Consumer]


@dataclass(frozen=True, slots=True)
class Name:
    """Which process this is."""

    instance: str
    host: str


class Member:
    """It joins its queue's group when its engine has answered, and leaves it when told to drain."""

    def __init__(
        self,
        queue: Queue,
        engine: Engine,
        around: Surroundings,
        ended: EndedRuns,
        *,
        consumers: ConsumerFactory,
        metrics: Metrics,
        on_warm: Callable[[], None] = lambda: None,
    ) -> None:
        self.queue = queue
        self._slots = Slots(queue.slots)
        self._telemetry = Telemetry(queue, self._slots, metrics)
        self._life = EngineLife(queue.label, engine, around.clock, self._telemetry.started, around.monotonic)
        handler = TaskHandler(queue, engine, self._life, around, self._telemetry)
        self._desk = Desk(
            queue, handler, slots=self._slots, ended=ended, solitude=around.solitude, max_batch=engine.max_batch,
            monotonic=around.monotonic,
        )  # fmt: skip
        self._consumption = Consumption(
            queue,
            self._desk,
            slots=self._slots,
            life=self._life,
            clock=around.clock,
            consumer_factory=lambda listener: consumers(consumer_settings(queue), listener),
            monotonic=around.monotonic,
        )
        self._on_warm = on_warm

    async def run(self) -> None:
        """A component. Raises what ends the process: an engine that does not start, Kafka's failures."""
        try:
            await self._life.start()
            self._on_warm()
            await self._consumption.run()
        finally:
            await self._desk.abandon()

    async def watch(self) -> None:
        """A component: raises EngineLostError when the engine is ill and does not heal."""
        await self._life.watch()

    async def drain(self, timeout_s: float) -> None:
        """Lets running tasks end for a while and leaves the group; what still runs then is stopped."""
        await self._consumption.drain(timeout_s)
        await self._desk.abandon()

    def status(self, name: Name) -> WorkerStatus:
        """What the fleet is told."""
        return WorkerStatus(
            instance=name.instance,
            host=name.host,
            model_class=self.queue.model_class,
            backend=self.queue.backend,
            state="draining" if self._consumption.stopping else self._life.state,
            slots=self.queue.slots,
            busy=self._slots.busy,
            ready_at=self._life.ready_at,
            committed=self._consumption.committed,
            service_ms=self._telemetry.service_ms,
        )

    def why_not_ready(self) -> str | None:
        """None when it is a member of its group with a warm engine."""
        if self._life.state != "warm":
            return f"the engine is {self._life.state}"
        return None if self._consumption.is_member else "not a member of its group"
