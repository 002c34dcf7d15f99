"""One queue on one worker: its engine, its slots, its loop, and what it says of itself."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from schemas.definitions import definition_of
from schemas.fleet import BreakerState, CircuitState, FleetMessage, WorkerStatus
from schemas.models import Queue
from services.chassis.health import ASLEEP
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
from services.worker.limiter import Limiter
from services.worker.telemetry import Telemetry

LONGEST_TASK_S = 86_400.0
"""Tasks end by their deadlines."""
ACCOUNT_S = 1.0
"""Costs follow the slots that are free at each of these looks."""

ConsumerFactory = Callable[[ConsumerSettings, RebalanceListener], Consumer]


@dataclass(frozen=True, slots=True)
class Name:
    """Which process this is."""

    instance: str
    host: str


class Member:
    """It joins its queue's group when its engine has answered, and leaves it when told to rest or to drain."""

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
        self._definition = definition_of(queue)
        self._monotonic = around.monotonic
        self._slots = Slots(queue.slots)
        self._limiter = Limiter(queue.label, engine, self._slots, around.monotonic)
        self._telemetry = Telemetry(queue, self._slots, metrics)
        self._circuit = Circuit(queue.breaker, around.monotonic)
        self._circuit.listen(self._on_circuit)
        self._life = EngineLife(
            queue.label, engine, around.clock, self._circuit,
            on_started=self._telemetry.started, monotonic=around.monotonic, age_s=around.age_s,
        )  # fmt: skip
        handler = TaskHandler(
            queue, engine, around,
            life=self._life, circuit=self._circuit, limiter=self._limiter, telemetry=self._telemetry,
        )  # fmt: skip
        self._desk = Desk(
            queue, handler, slots=self._slots, ended=ended, solitude=around.solitude, max_batch=engine.max_batch,
            monotonic=around.monotonic,
        )  # fmt: skip
        self._membership = partial(
            Consumption,
            queue,
            self._desk,
            slots=self._slots,
            life=self._life,
            clock=around.clock,
            consumer_factory=lambda listener: consumers(consumer_settings(queue), listener),
            monotonic=around.monotonic,
        )
        self._consumption = self._membership()
        self._on_change = on_change
        self._ending = False
        self._rest = around.rest
        self._rest.listen(self._on_rest)
        self._roused = asyncio.Event()
        """It need not rest, or not any more."""
        self._on_rest()

    async def run(self) -> None:
        """A component. Raises what ends the process: an engine that does not start or wake, Kafka's failures."""
        try:
            await self._life.start()
            while not self._ending:
                self._on_change()
                if self._roused.is_set():
                    await self._work()
                else:
                    await self._sleep()
        except BaseException:
            await self._desk.abandon()
            raise

    async def _work(self) -> None:
        """Until it is to rest or to end; as a new member, if it has left the group before."""
        if self._consumption.stopping:
            self._consumption = self._membership()
        await self._consumption.run()

    async def _sleep(self) -> None:
        """Until it is roused. What still runs ends first, under its claims, however long it takes."""
        roused = asyncio.create_task(self._roused.wait())
        drained = asyncio.create_task(self._desk.drain(LONGEST_TASK_S))
        try:
            await asyncio.wait((roused, drained, self._desk.failed), return_when=asyncio.FIRST_COMPLETED)
            if self._desk.failed.done():
                self._desk.failed.result()
            if not roused.done():
                await self._life.sleep()
                self._on_change()
                await roused
        finally:
            roused.cancel()
            drained.cancel()
        if not self._ending:
            await self._life.wake()

    def _on_rest(self) -> None:
        """Its host wishes something else."""
        if not self._rest.wanted:
            self._roused.set()
        elif not self._ending:
            self._roused.clear()
            self._consumption.stop()

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

    async def limit(self) -> None:
        """A component: lets the slots follow what the engine can take."""
        await self._limiter.keep()

    async def account(self) -> None:
        """A component: counts what the replica costs while its slots are free or it sleeps, from its start on."""
        last_s = self._monotonic()
        while True:
            await asyncio.sleep(ACCOUNT_S)
            before_s, last_s = last_s, self._monotonic()
            if self._life.started:
                self._telemetry.idled(last_s - before_s, asleep=self._life.state == "asleep")

    async def drain(self, timeout_s: float) -> None:
        """Leaves the group and lets running tasks end for a while; what still runs then is stopped."""
        over_at = self._monotonic() + timeout_s
        self._ending = True
        self._roused.set()
        await self._consumption.leave()
        await self._desk.drain(over_at - self._monotonic())
        await self._desk.abandon()

    def news(self, name: Name) -> Iterator[FleetMessage]:
        """What the fleet is told. Of an engine that never answered, or sleeps, nothing can be said but that."""
        yield self.status(name)
        if self._life.started and self._life.state != "asleep":
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
            state="draining" if self._is_draining else self._life.state,
            slots=self._slots.total,
            busy=self._slots.busy,
            ready_at=self._life.ready_at,
            committed=self._consumption.committed,
            service_ms=self._telemetry.service_ms,
            start_ms=self._life.start_ms,
            definition=self._definition,
        )

    def _on_circuit(self, state: CircuitState) -> None:
        log.warning("breaker_changed", queue=self.queue.label, state=state)
        self._telemetry.breaker(state)
        self._on_change()

    def why_not_ready(self) -> str | None:
        """None when it is a member of its group with a warm engine; ASLEEP when it sleeps."""
        if self._is_draining:
            return "draining"
        if self._life.state != "warm":
            return ASLEEP if self._life.state == "asleep" else f"the engine is {self._life.state}"
        return None if self._consumption.is_member else "not a member of its group"

    @property
    def _is_draining(self) -> bool:
        """Before it ends or sleeps."""
        return self._ending or (self._consumption.stopping and self._life.state == "warm")
