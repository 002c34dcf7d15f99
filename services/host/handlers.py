"""Keeps the wanted workers running: asks the domain what to do, does it, and watches every process."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from schemas.fleet import Capacity, HostStatus
from schemas.metrics import WORKER_RESTARTS_TOTAL
from schemas.models import Queue
from services.chassis.logging import canonical, log
from services.chassis.metrics import Metrics
from services.host.domain.orders import Order
from services.host.domain.ports import Launcher, WorkerProcess
from services.host.domain.replicas import (
    UNBOUNDED,
    Action,
    Forget,
    Kill,
    Replica,
    Sleep,
    Start,
    Stop,
    Wake,
    Worker,
    after_exit,
    decide,
    heard,
)
from services.host.domain.room import full_for
from services.host.domain.wishes import Wish, Wishes, allowed, unknown, wishes

TICK_S = 0.5
BOOTING_PROBE_S, STARTING_PROBE_S, READY_PROBE_S = 0.05, 0.25, 1.75
"""While a worker boots the next one waits for its core."""
"""Between two questions to a worker that becomes something else; so much more once it has."""
FAILED_FOR_S = 900.0
"""A queue whose workers were taken away because they fail here comes back only if it fails everywhere: a model that
loads longer than a host believes in would else be started now here, now there, and never be ready."""
WELL = {False: ("ready",), True: ("ready", "dozing", "asleep")}
"""States of a worker that does what it is to do, by whether that is to sleep."""


@dataclass(slots=True)
class _Place:
    """A worker as the domain sees it, and its process while there is one."""

    worker: Worker
    queue: Queue
    began: float
    process: WorkerProcess | None = None
    watch: asyncio.Task[None] | None = None
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """It is to become something else: it is asked soon whether it has."""


class Workers:
    """The workers of one host. `want` and `obey` say which; `run` keeps it so."""

    def __init__(
        self,
        launcher: Launcher,
        metrics: Metrics,
        model_classes: Collection[str] = (),
        patience_s: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        cores: int = UNBOUNDED,
        capacity: Capacity | None = None,
    ) -> None:
        """`model_classes`: which may run here; empty: all. `patience_s`: how long it waits for a first order.

        `cores`: that workers boot on. `capacity`: unknown, there is room for anything.
        """
        self._launcher = launcher
        self._restarted = metrics.counter(WORKER_RESTARTS_TOTAL)
        self._model_classes = model_classes
        self._monotonic = monotonic
        self._cores = cores
        self._capacity = capacity
        self._alone_at = monotonic() + patience_s
        self._queues: Sequence[Queue] | None = None
        self._order: Order | None = None
        self._wishes: Wishes | None = None
        self._asleep: set[Replica] = set()
        self._places: dict[Replica, _Place] = {}
        self._failed_at: dict[str, float] = {}
        """By queue label, when its workers were last seen to fail."""
        self._changed = asyncio.Event()
        self._settled = self._ending = self._leaving = False
        self.left = asyncio.Event()
        """It is to be given back, and nothing runs here any more, nor is to."""
        self.restarts = 0

    def want(self, queues: Sequence[Queue]) -> None:
        """Takes a new configuration's queues."""
        missing = set(self._model_classes) - {queue.model_class for queue in queues}
        if missing:
            log.warning("model_classes_unknown", allowed_but_not_configured=sorted(missing))
        self._queues = allowed(queues, self._model_classes)
        for queue in self._queues:
            self._restarted.labels(queue.model_class, queue.backend)  # at 0: only then is the first an increase
        self._wish()

    def obey(self, order: Order) -> None:
        """Takes an order; it stays in force until the next one."""
        is_new = self._order is None or order.queues != self._order.queues
        self._order = order
        if is_new:
            log.info("ordered", epoch=order.epoch, queues={label: str(kept) for label, kept in order.queues.items()})
            if self._queues is not None and (strange := sorted(unknown(self._queues, order))):
                log.warning("order_not_followed", no_such_queues_here=strange)
            self._wish()

    def _wish(self) -> None:
        waits = self._order is None and self._monotonic() < self._alone_at
        if self._queues is None or waits or self._ending:
            return
        self._wishes = wishes(self._queues, self._order)
        self._asleep = {replica for replica, wish in self._wishes.items() if wish.asleep}
        self._changed.set()

    async def run(self) -> None:
        """A component."""
        while True:
            if self._wishes is None:
                self._wish()
            self._changed.clear()
            for action in self._decide():
                await self._do(action)
            self._look()
            try:
                async with asyncio.timeout(TICK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _decide(self) -> Sequence[Action]:
        workers = {replica: place.worker for replica, place in self._places.items()}
        full = full_for(self._queues or (), self._running(), self._capacity) if self._capacity else ()
        now = self._monotonic()
        return decide(self._wishes or (), workers, now, self._asleep, cores=self._cores, full_for=full)

    def _running(self) -> Iterator[Wish]:
        """As if they were wished."""
        running = [place for place in self._places.values() if place.process]
        return (Wish(place.queue, asleep=place.worker.state == "asleep") for place in running)

    def _look(self) -> None:
        """What has been reached for good, and what fails."""
        self._judge()
        if self._wishes is not None and all(self._is_well(*wished) for wished in self._wishes.items()):
            self._settled = True
        if self._leaving and not self._places and not self._wishes:
            self.left.set()

    def _judge(self) -> None:
        now = self._monotonic()
        failing = {replica.label for replica, place in self._places.items() if place.worker.is_failing(now)}
        proven = {replica.label for replica, place in self._places.items() if place.worker.is_proven(now)}
        for label in proven - failing:
            self._failed_at.pop(label, None)
        self._failed_at.update(dict.fromkeys(failing, now))

    def leave(self) -> None:
        """It is to be given back: whoever places is told, and gives it nothing new."""
        self._leaving = True

    async def drain(self, grace_s: float) -> None:
        """Stops all workers together; what is left after `grace_s` is killed."""
        self._ending, self._wishes = True, {}
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
        if self._queues is None:
            return "no configuration yet"
        if self._wishes is None:
            return "no placement yet"
        waiting = [replica.name for replica, wish in self._wishes.items() if self._is_missed(replica, wish)]
        return f"waiting for {', '.join(waiting)}" if waiting else None

    def status(self, host: HostStatus) -> HostStatus:
        """What the fleet is told of the workers; the rest is as in `host`."""
        now = self._monotonic()
        running = {replica: place.worker for replica, place in self._places.items() if place.process}
        told = {
            "workers": _counted(running),
            "ready": _counted(replica for replica, worker in running.items() if worker.state == "ready"),
            "desired": None if self._wishes is None else _counted(self._wishes),
            "restarts": self.restarts,
            "leaving": self._leaving,
            "failing": tuple(sorted(label for label, at in self._failed_at.items() if now - at < FAILED_FOR_S)),
        }
        return host.model_copy(update=told)

    async def expositions(self) -> dict[str, str]:
        """The metrics of every worker that answers in time, by the worker's name."""
        running = [(self._name(replica), place.process) for replica, place in self._places.items() if place.process]
        texts = await asyncio.gather(*(process.exposition() for _, process in running))
        return {name: text for (name, _), text in zip(running, texts, strict=True) if text is not None}

    def _name(self, replica: Replica) -> str:
        """That of an outdated one is its heir's by now."""
        heirs = {wished.name: wished for wished in self._wishes or ()}
        return replica.name if heirs.get(replica.name, replica) == replica else f"{replica.name}-{replica.version}"

    def _is_well(self, replica: Replica, wish: Wish) -> bool:
        place = self._places.get(replica)
        return place is not None and place.worker.state in WELL[wish.asleep]

    def _is_missed(self, replica: Replica, wish: Wish) -> bool:
        """Once all were there, one that an order adds or wakes is missed only if it fails: they come and go."""
        if self._is_well(replica, wish):
            return False
        place = self._places.get(replica)
        comes = self._settled and self._order is not None
        return not comes or (place is not None and place.worker.failures > 0)

    async def _do(self, action: Action) -> None:
        match action:
            case Start():
                await self._start(action)
            case Sleep(replica):
                self._sleep(self._places[replica])
            case Wake(replica):
                self._wake(self._places[replica])
            case Stop(replica):
                self._stop(self._places[replica])
            case Kill(replica):
                self._kill(self._places[replica], replica)
            case Forget(replica):
                del self._places[replica]

    async def _start(self, action: Start) -> None:
        wish = self._wishes.get(action.replica) if self._wishes else None
        if wish is None:  # while others were started, another order came, or the end
            return
        queue, now = wish.queue, self._monotonic()
        before = self._places.get(action.replica)
        failures = before.worker.failures if before else 0
        place = _Place(Worker("starting", now, now, failures), queue, now)
        self._places[action.replica] = place
        if before:
            self.restarts += 1
            self._restarted.labels(queue.model_class, queue.backend).inc()
        try:
            place.process = await self._launcher.start(action.replica, queue, asleep=action.asleep)
        except OSError as error:
            log.error("worker_not_started", worker=action.replica.name, exc_info=error)
            self._ended(action.replica, place)
            return
        place.watch = asyncio.create_task(self._watch(action.replica, place, place.process))

    def _sleep(self, place: _Place) -> None:
        if place.process:
            place.worker = replace(place.worker, state="dozing")
            place.process.sleep()
            place.told.set()

    def _wake(self, place: _Place) -> None:
        if place.process:
            place.worker = replace(place.worker, state="starting")
            place.process.wake()
            place.told.set()

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
            answer = await process.answer()
            if answer is not None and place.worker.is_live:
                before, now = place.worker, self._monotonic()
                place.worker = heard(before, now, answer)
                if place.worker.state != before.state or before.is_booting(now):
                    self._changed.set()
            if answer in ("ready", "asleep"):
                await _event_or(READY_PROBE_S, place.told)
                place.told.clear()
            is_booting = place.worker.is_booting(self._monotonic())
            await asyncio.sleep(BOOTING_PROBE_S if is_booting else STARTING_PROBE_S)


async def _event_or(timeout_s: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


def _counted(replicas: Iterable[Replica]) -> dict[str, int]:
    """By queue label."""
    return dict(Counter(replica.label for replica in replicas))
