"""What an autoscaler does while it leads: look, decide, tell; every second, and at once when a run needs a class that
has no worker.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import NamedTuple, Protocol

from schemas.fleet import FleetMessage, Kept, Placement, ScalingDecision, Term
from schemas.graphs import Step
from services.autoscaler.domain.budget import affordable
from services.autoscaler.domain.control import Control, Plan, Scaled
from services.autoscaler.domain.explanation import because, explain
from services.autoscaler.domain.hosts import Host
from services.autoscaler.domain.layout import Layout, Unplaced
from services.autoscaler.domain.policy import Decision
from services.autoscaler.domain.season import SLOT_S
from services.autoscaler.domain.watched import NOTHING, Watched
from services.autoscaler.memory import Memory
from services.autoscaler.observer import Observer
from services.autoscaler.runs import RunFollower
from services.chassis.clock import LogClock
from services.chassis.fleet import FleetPublisher
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.types import KafkaError, Producer
from services.chassis.logging import log

LOOK_EVERY_S = 1.0
REST_S = 0.2
"""Between two looks at least, however many runs start."""
REPEAT_AFTER = 2
"""Looks: whoever joins later hears it soon, and hosts know that somebody leads."""

READ_BACK, READ_BACK_S = 2_000, 3.0
"""Events of each partition that a new leader begins with, and what it waits for them: runs have started while nobody
led, and what the last leader started for others is theirs."""
FOLLOW_AGAIN_S = 5.0
"""After the events could not be read."""
REMEMBER_EVERY_S = 60.0
"""What was learned later is lost with a process that is killed."""


class Audience(Protocol):
    """Who wants to know what was decided, beside the fleet."""

    def on_look(self, plan: Plan, hosts: Sequence[Host]) -> None:
        """After every look."""

    def on_end(self) -> None:
        """This autoscaler leads no more."""


class Surroundings(NamedTuple):
    """What a reign works with."""

    instance: str
    clock: LogClock
    producer: Producer
    observer: Observer
    events: Callable[[int], AbstractAsyncContextManager[LogReader]]
    """Opens the events topic so many records before the end of each partition."""
    memory: Memory
    places: bool = True
    """Whether hosts are told; else somebody else starts workers."""
    look_every_s: float = LOOK_EVERY_S


class Scaler:
    """Leads again and again: each reign begins with what runs, and with what was decided last."""

    def __init__(self, around: Surroundings, audience: Sequence[Audience] = ()) -> None:
        self._around = around
        self._audience = audience
        self._watched = NOTHING
        self._reign: _Reign | None = None

    def watch(self, watched: Watched) -> None:
        """Takes another configuration."""
        self._watched = watched
        if self._reign:
            self._reign.watch(watched)

    @property
    def control(self) -> Control | None:
        """What decides; None while another one leads."""
        return self._reign.control if self._reign else None

    async def lead(self, epoch: int) -> None:
        """Until cancelled. Raises what a part of it raised."""
        control = Control(before=await self._around.memory.recall())
        self._reign = _Reign(epoch, self._around, self._audience, control)
        self._reign.watch(self._watched)
        try:
            await self._reign.run()
        finally:
            self._reign = None
            for each in self._audience:
                each.on_end()
            await self._around.memory.keep(control.learned())


class _Reign:
    """From one epoch to its end."""

    def __init__(self, epoch: int, around: Surroundings, audience: Sequence[Audience], control: Control) -> None:
        self.control = control
        self._epoch = epoch
        self._around = around
        self._audience = audience
        self._watched = NOTHING
        self._plan: Plan | None = None
        self._hears_hosts = False
        self._hurry = asyncio.Event()
        self._knows_runs = asyncio.Event()
        """That are open, or cannot."""
        self._publisher = FleetPublisher(
            around.producer, around.clock, self._messages, REPEAT_AFTER * around.look_every_s
        )

    def watch(self, watched: Watched) -> None:
        self._watched = watched
        tiers = affordable(watched, self.control.learned())
        self.control.watch([Scaled.of(queue, tiers.get(queue.label)) for queue in watched.queues])

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_on())
            group.create_task(self._publisher.run())
            group.create_task(self._follow_runs())
            group.create_task(self._remember())
            group.create_task(self._choose_tiers())

    async def _remember(self) -> None:
        while True:
            await asyncio.sleep(REMEMBER_EVERY_S)
            await self._around.memory.keep(self.control.learned())

    async def _choose_tiers(self) -> None:
        """Anew when a season has learned more: what is worth its money changes with the load."""
        while True:
            await asyncio.sleep(SLOT_S)
            self.watch(self._watched)

    async def _follow_runs(self) -> None:
        """Without it nothing is done ahead; what comes and waits is seen all the same."""
        tail = READ_BACK
        while True:
            try:
                await self._follow_from(tail)
            except KafkaError as error:
                log.warning("runs_not_followed", exc_info=error)
            tail = 0
            self._knows_runs.set()
            await asyncio.sleep(FOLLOW_AGAIN_S)

    async def _follow_from(self, tail: int) -> None:
        follower = RunFollower(self.control.open_runs, self._on_needs)
        async with self._around.events(tail) as events:
            if tail:
                await follower.catch_up(events)
            self._knows_runs.set()
            await follower.run(events)

    def _on_needs(self, steps: Sequence[Step]) -> None:
        """A run has started: is there a worker of every queue that it will call?"""
        decisions = self._plan.decisions if self._plan else {}
        wanted = [decisions.get(self.control.label_of(step)) for step in steps]
        if any(decision is not None and not decision.replicas for decision in wanted):
            self._hurry.set()

    async def _look_on(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_BACK_S):
                await self._knows_runs.wait()
        waits_for, rest_s = None, min(REST_S, self._around.look_every_s / 2)
        while True:
            self._hurry.clear()
            reason = self._look()
            if reason != waits_for:
                log.info("autoscaler_waits" if reason else "autoscaler_decides", reason=reason)
                waits_for = reason
            await asyncio.sleep(rest_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._around.look_every_s - rest_s):
                    await self._hurry.wait()

    def _look(self) -> str | None:
        """Once; or why not yet. Later on what is missing holds a decision, and the decision says so."""
        now_ms = self._around.clock.now_ms()
        if self._plan is None and (reason := self._around.observer.why_not_yet()):
            return reason
        if now_ms is None:
            return "the log's time is not known"
        if self._plan is None:
            self.control.take_up(self._around.observer.decided())
        sight = self._around.observer.look(self._watched)
        self._hears_hosts = sight.hosts is not None
        hosts = sight.hosts if self._around.places else None
        plan = self.control.look(sight.queues, hosts, now_ms / 1_000)
        before, self._plan = self._plan or Plan({}, Layout()), plan
        if _asks(plan) != _asks(before):
            self._publisher.hurry()
            _log_changes(before, plan)
        for each in self._audience:
            each.on_look(plan, sight.hosts or ())
        return None

    def _messages(self) -> Sequence[FleetMessage]:
        """What is told now, and repeated. Hosts that are not heard are told nothing, and go on."""
        if self._plan is None:
            return ()
        placed = self._plan.layout.hosts if self._hears_hosts else {}
        unplaced = {each.label: each for each in self._plan.layout.unplaced}
        return [
            *(self._placement(host) for host in placed),
            *(self._decision(label, decided, unplaced.get(label)) for label, decided in self._plan.decisions.items()),
        ]

    def _placement(self, host: str) -> Placement:
        assert self._plan is not None
        queues = {label: Kept(warm=it.warm, asleep=it.asleep) for label, it in self._plan.layout.hosts[host].items()}
        return Placement(instance=self._around.instance, host=host, epoch=self._epoch, queues=queues)

    def _decision(self, label: str, decision: Decision, unplaced: Unplaced | None) -> ScalingDecision:
        return ScalingDecision(
            instance=self._around.instance,
            epoch=self._epoch,
            queue=label,
            replicas=decision.replicas,
            asleep=decision.asleep,
            unplaced=unplaced.warm + unplaced.asleep if unplaced else 0,
            lag_s=decision.terms.lag_s,
            start_s=self.control.start_s(label),
            because=because(decision),
            terms=tuple(Term(term=line.term, value=line.value, how=line.how) for line in explain(decision)),
            steady=decision.steadied.told(),
        )


def _asks(plan: Plan) -> tuple[object, ...]:
    """What hosts and readers would do otherwise for: other reasons can wait."""
    return _sizes(plan), plan.layout


def _sizes(plan: Plan) -> Mapping[str, tuple[int, int]]:
    return {label: (decision.replicas, decision.asleep) for label, decision in plan.decisions.items()}


def _log_changes(before: Plan, after: Plan) -> None:
    was = _sizes(before)
    for label, (replicas, asleep) in _sizes(after).items():
        if was.get(label) != (replicas, asleep):
            log.info("scaled", queue=label, replicas=replicas, asleep=asleep, because=because(after.decisions[label]))
