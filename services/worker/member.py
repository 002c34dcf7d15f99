"""One queue on one worker: its engine, its slots, its loop, and what it says of itself."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from schemas.fleet import BreakerState, CircuitState, FleetMessage, WorkerStatus
from schemas.models import Queue
from services.chassis.kafka.types import Consumer, ConsumerSettings, RebalanceListener
from services.chassis.logging import log
from services.chassis.metrics import Metrics
from services.worker.circuit import Circuit
from services.worker.consumption import Consumption, consumer_settings
from services.worker.desk import Desk
from services.worker.domain.engine import Engine
from services.worker.domain.slots import Slots
from services.worker.ended_runs import EndedRuns
from services.worker.engine_life import EngineLife, EngineLostError
from services.worker.handlers import Surroundings, TaskHandler
from services.worker.telemetry import Telemetry

ACCOUNT_S = 1.0
"""Costs follow the slots that are free at each of these looks."""

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
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when the fleet should hear of it at once."""
        self.queue = queue
        self._monotonic = around.monotonic
        self._slots = Slots(queue.slots)
        self._telemetry = Telemetry(queue, self._slots, metrics)
        self._circuit = Circuit(queue.breaker, around.monotonic)
        self._circuit.listen(self._on_circuit)
        self._life = EngineLife(
            queue.label, engine, around.clock, self._circuit,
            on_started=self._telemetry.started, monotonic=around.monotonic,
        )  # fmt: skip
        handler = TaskHandler(
            queue, engine, around, life=self._life, circuit=self._circuit, telemetry=self._telemetry
        )
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
        self._on_change = on_change

    async def run(self) -> None:
        """A component. Raises what ends the process: an engine that does not start, Kafka's failures."""
        try:
            await self._life.start()
            self._on_change()
            await self._consumption.run()
        except BaseException:
            await self._desk.abandon()
            raise

    async def watch(self) -> None:
        """A component: raises EngineLostError when the engine is ill and does not heal."""
        try:
            await self._life.watch()
        except EngineLostError:
            self._desk.disown()
            raise

    async def guard(self) -> None:
        """A component: lets time pass for the circuit breaker."""
        await self._circuit.keep()

    async def account(self) -> None:
        """A component: counts what the replica costs while its slots are free, from its engine's start on."""
        last_s = self._monotonic()
        while True:
            await asyncio.sleep(ACCOUNT_S)
            before_s, last_s = last_s, self._monotonic()
            if self._life.started:
                self._telemetry.idled(last_s - before_s)

    async def drain(self, timeout_s: float) -> None:
        """Leaves the group and lets running tasks end for a while; what still runs then is stopped."""
        over_at = self._monotonic() + timeout_s
        await self._consumption.leave()
        await self._desk.drain(over_at - self._monotonic())
        await self._desk.abandon()

    def news(self, name: Name) -> Iterator[FleetMessage]:
        """What the fleet is told. Of an engine that never answered nothing can be said but that."""
        yield self.status(name)
        if self._life.started:
            yield BreakerState(
                instance=name.instance,
                model_class=self.queue.model_class,
                backend=self.queue.backend,
                state=self._circuit.state,
                probes=self._circuit.room(self.queue.breaker.probes) if self._circuit.is_half_open else 0,
            )

    def status(self, name: Name) -> WorkerStatus:
        """What this worker is and does."""
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

    def _on_circuit(self, state: CircuitState) -> None:
        log.warning("breaker_changed", queue=self.queue.label, state=state)
        self._telemetry.breaker(state)
        self._on_change()

    def why_not_ready(self) -> str | None:
        """None when it is a member of its group with a warm engine."""
        if self._life.state != "warm":
            return f"the engine is {self._life.state}"
        return None if self._consumption.is_member else "not a member of its group"
