"""Keeps the wanted workers running: asks the domain what to do, does it, and watches every process."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.fleet import FleetMessage, HostStatus, ServiceStatus
from schemas.metrics import WORKER_RESTARTS_TOTAL
from schemas.models import Queue
from services.chassis.logging import canonical, log
from services.chassis.metrics import Metrics
from services.host.domain.ports import Launcher, WorkerProcess
from services.host.domain.replicas import (
    Action,
    Forget,
    Kill,
    Replica,
    Start,
    Stop,
    Worker,
    after_exit,
    decide,
    desired,
    version_of,
)

TICK_S = 0.5
STARTING_PROBE_S, READY_PROBE_S = 0.25, 2.0


@dataclass(slots=True)
class _Place:
    """A worker as the domain sees it, and its process while there is one."""

    worker: Worker
    queue: Queue
    began: float
    process: WorkerProcess | None = None
    watch: asyncio.Task[None] | None = None


class Workers:
    """The workers of one host. `want` says which; `run` keeps it so."""

    def __init__(
        self,
        launcher: Launcher,
        metrics: Metrics,
        allowed: Collection[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher = launcher
        self._restarted = metrics.counter(WORKER_RESTARTS_TOTAL)
        self._allowed = allowed
        self._monotonic = monotonic
        self._wanted: Mapping[Replica, Queue] | None = None
        self._versions: dict[Replica, str] = {}
        self._places: dict[Replica, _Place] = {}
        self._changed = asyncio.Event()
        self.restarts = 0

    def want(self, queues: Sequence[Queue]) -> None:
        """Takes a new configuration's queues."""
        self._wanted = desired(queues, self._allowed)
        self._versions = {replica: version_of(queue) for replica, queue in self._wanted.items()}
        for queue in self._wanted.values():
            self._restarted.labels(queue.model_class, queue.backend)  # at 0: only then is the first an increase
        unknown = set(self._allowed) - {queue.model_class for queue in queues}
        if unknown:
            log.warning("model_classes_unknown", allowed_but_not_configured=sorted(unknown))
        self._changed.set()

    async def run(self) -> None:
        """A component."""
        while True:
            self._changed.clear()
            for action in decide(self._versions, self._seen(), self._monotonic()):
                await self._do(action)
            try:
                async with asyncio.timeout(TICK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def drain(self, grace_s: float) -> None:
        """Stops all workers together; what is left after `grace_s` is killed."""
        self._wanted, self._versions = {}, {}
        for place in self._places.values():
            self._stop(place)
        watches = [place.watch for place in self._places.values() if place.watch]
        if watches:
            await asyncio.wait(watches, timeout=grace_s)
        for place in self._places.values():
            if place.process:
                place.process.kill()

    def why_not_ready(self) -> str | None:
        """A readiness check."""
        if self._wanted is None:
            return "no configuration yet"
        waiting = [replica.name for replica in self._wanted if self._state(replica) != "ready"]
        return f"waiting for {', '.join(waiting)}" if waiting else None

    def statuses(self, instance: str, revision: int | None) -> list[FleetMessage]:
        """What the host tells the fleet."""
        running = Counter(replica.label for replica, place in self._places.items() if place.process)
        wanted = None if self._wanted is None else dict(Counter(replica.label for replica in self._wanted))
        return [
            ServiceStatus(instance=instance, service="host", revision=revision),
            HostStatus(instance=instance, workers=dict(running), desired=wanted, restarts=self.restarts),
        ]

    async def expositions(self) -> dict[str, str]:
        """The metrics of every worker that answers in time, by the worker's name."""
        running = [(replica.name, place.process) for replica, place in self._places.items() if place.process]
        texts = await asyncio.gather(*(process.exposition() for _, process in running))
        return {name: text for (name, _), text in zip(running, texts, strict=True) if text is not None}

    def _seen(self) -> dict[Replica, Worker]:
        return {replica: place.worker for replica, place in self._places.items()}

    def _state(self, replica: Replica) -> str | None:
        place = self._places.get(replica)
        return place.worker.state if place else None

    async def _do(self, action: Action) -> None:
        if isinstance(action, Start):
            await self._start(action)
        elif isinstance(action, Stop):
            self._stop(self._places[action.replica])
        elif isinstance(action, Kill):
            self._kill(self._places[action.replica], action.replica)
        else:
            assert isinstance(action, Forget)
            del self._places[action.replica]

    async def _start(self, action: Start) -> None:
        assert self._wanted is not None
        queue, now = self._wanted[action.replica], self._monotonic()
        before = self._places.get(action.replica)
        failures = before.worker.failures if before else 0
        place = _Place(Worker("starting", action.version, now, now, failures), queue, now)
        self._places[action.replica] = place
        if before:
            self.restarts += 1
            self._restarted.labels(queue.model_class, queue.backend).inc()
        try:
            place.process = await self._launcher.start(action.replica, queue)
        except OSError as error:
            log.error("worker_not_started", worker=action.replica.name, exc_info=error)
            self._ended(action.replica, place)
            return
        place.watch = asyncio.create_task(self._watch(action.replica, place, place.process))

    def _stop(self, place: _Place) -> None:
        if place.process and place.worker.is_live:
            place.worker = replace(place.worker, state="stopping", since=self._monotonic())
            place.process.stop()

    def _kill(self, place: _Place, replica: Replica) -> None:
        log.warning("worker_killed", worker=replica.name, was=place.worker.state)
        if place.process:
            place.process.kill()

    async def _watch(self, replica: Replica, place: _Place, process: WorkerProcess) -> None:
        """From the start of a process to its end."""
        probe = asyncio.create_task(self._probe(place, process))
        try:
            code = await process.wait()
        finally:
            probe.cancel()
        lived_s = round(self._monotonic() - place.began, 1)
        canonical("worker_ended", worker=replica.name, exit_code=code, was=place.worker.state, lived_s=lived_s)
        place.process = None
        self._ended(replica, place)

    def _ended(self, replica: Replica, place: _Place) -> None:
        left = after_exit(place.worker, self._monotonic())
        if left is None:
            del self._places[replica]
        else:
            place.worker = left
        self._changed.set()

    async def _probe(self, place: _Place, process: WorkerProcess) -> None:
        while True:
            ready = await process.is_ready()
            worker = place.worker
            if ready is not None and worker.is_live:
                place.worker = replace(worker, state="ready" if ready else "starting", heard_at=self._monotonic())
            await asyncio.sleep(READY_PROBE_S if ready else STARTING_PROBE_S)
