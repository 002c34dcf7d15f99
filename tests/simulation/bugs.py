"""Bugs that the simulation must find: each one is a small change to the services' real code.

They keep the simulation honest. A check that a bug slips past is weaker than it looks.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pydantic_core import from_json, to_json

from schemas.base import StepStatus
from schemas.events import RunFinished, StepCompleted
from schemas.topics import EVENTS, RESPONSES, USAGE
from services.aggregator import actions, handlers, snapshots
from services.aggregator.domain import fold as folding
from services.aggregator.domain import memory
from services.chassis.kafka import stream, watermark
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import Outgoing
from services.worker import desk
from services.worker import handlers as worker_handlers
from tests.simulation.world import EPOCH_MS

Patches = Mapping[tuple[Any, str], Any]


def forget_finished_runs() -> Patches:
    """A run that is over may start again."""
    return {(memory.Memory, "remember"): lambda self, _key, _value, _now: self}


def respond_before_the_marker() -> Patches:
    """The response is published when it is decided, not when its `run-finished` is read back."""
    publish = actions.Actions._publish

    def with_response(self: Any, run: Any, partition: int) -> list[Outgoing]:
        found = finish(self, run, partition)
        return [*found, *(_answer(record) for record in found)]

    def only_the_bill(self: Any, decision: Any, record: Any) -> list[Outgoing]:
        return [out for out in publish(self, decision, record) if out.topic == USAGE]

    finish = actions.Actions._finish
    return {(actions.Actions, "_finish"): with_response, (actions.Actions, "_publish"): only_the_bill}


def _answer(record: Outgoing) -> Outgoing:
    finished = RunFinished.model_validate_json(record.value or b"")
    value = to_json(from_json(record.value or b"")["response"])
    return run_record(RESPONSES, finished, key=finished.response.request_id, value=value)


def act_before_caught_up() -> Patches:
    """Timers speak while the state is still some past."""
    return {(handlers.Owned, "is_caught_up"): property(lambda _self: True)}


def act_on_what_was_acted_upon() -> Patches:
    """A new owner is not silent below the commit."""
    fold = handlers.Owned.fold

    def loud(self: Any, record: Any, event: Any) -> Any:
        self.acted = 0
        return fold(self, record, event)

    return {(handlers.Owned, "fold"): loud}


def trust_the_local_clock() -> Patches:
    """Time is when a record is folded, not when it was appended."""

    def by_own_time(self: Any, record: Any, event: Any) -> Any:
        now = EPOCH_MS + int(asyncio.get_running_loop().time() * 1_000)
        return fold(self, replace(record, timestamp=now), event)

    fold = handlers.Owned.fold
    return {(handlers.Owned, "fold"): by_own_time}


def load_the_newest_snapshot() -> Patches:
    """The next owner takes the newest snapshot there is, whether or not the commit names it."""
    newest: dict[int, snapshots.Version] = {}
    write = snapshots.Snapshots.write

    async def remembered(self: Any, partition: int, version: Any, trail: Any) -> Any:
        packed = await write(self, partition, version, trail)
        if trail.newest is not None:
            newest[partition] = trail.newest
        return packed

    async def resume(self: Any, partition: int, commit: Any, begin: int, end: int) -> Any:
        owned = await resume_rightly(self, partition, commit, begin, end)
        found = newest.get(partition)
        if found is None or found.offset <= owned.position:
            return owned
        return handlers.Owned(found.state, found.offset, commit.offset, end, owned.trail)

    resume_rightly = handlers.Join._resume
    return {(snapshots.Snapshots, "write"): remembered, (handlers.Join, "_resume"): resume}


def commit_before_the_acknowledgement() -> Patches:
    """A record is passed when its effects are on their way."""

    async def send(self: Any, assignment: Any, records: Any, results: Any) -> None:
        for record in records:
            assignment.watermarks[record.tp].done(record.offset)
        await send_rightly(self, assignment, records, results)

    send_rightly = stream._Session._send
    return {(stream._Session, "_send"): send}


def count_instead_of_a_set() -> Patches:
    """A repeated result counts as one more of those that a step waits for."""

    def on_step_completed(run: Any, event: Any, now: int) -> Any:
        state = run.steps.get(event.step)
        if state is None or state.status is not StepStatus.SUCCEEDED:
            return rightly(run, event, now)
        ready = [
            step
            for step in run.plan.dependents[event.step]
            if run.steps[step].status is StepStatus.PENDING
            and sum(not run.steps[need].is_over for need in run.plan.steps[step].needs) == 1
        ]
        return folding._start(run, ready, now)

    rightly = folding._on_step_completed
    return {(folding, "_HANDLERS"): {**folding._HANDLERS, StepCompleted: on_step_completed}}


def ignore_the_attempt() -> Patches:
    """A failure counts, whichever attempt it is of."""
    return {(folding, "_is_current"): lambda state, _event: state.status is StepStatus.READY}


def commit_the_newest_plus_one() -> Patches:
    """The commit follows the newest record that is done, over those that are not."""

    def done(self: Any, offset: int) -> None:
        rightly(self, offset)
        self.newest_done = max(offset, getattr(self, "newest_done", -1))

    def committable(self: Any) -> int | None:
        return getattr(self, "newest_done", -1) + 1 or None

    rightly = watermark.Watermark.done
    return {(watermark.Watermark, "done"): done, (watermark.Watermark, "committable"): committable}


def charge_every_event() -> Patches:
    """A repeated event is paid for again."""

    def charge(state: Any, event: Any) -> Any:
        return rightly(replace(state, charged=frozenset()), event)

    rightly = folding._charge
    return {(folding, "_charge"): charge}


def pass_a_task_before_its_result() -> Patches:
    """A worker lets its watermark pass when a task begins."""

    def receive(self: Any, record: Any, lane: Any, passed: Callable[[], None]) -> None:
        passed()
        rightly(self, record, lane, passed)

    rightly = desk.Desk.receive
    return {(desk.Desk, "receive"): receive}


def publish_the_last_outcome() -> Patches:
    """Every `run-finished` is answered, not only the first."""

    def on_unknown(partition: Any, event: Any, run: Any, now: int) -> Any:
        folded, decisions = rightly(partition, event, run, now)
        return replace(folded, open=folded.open.set(event.run_id, run)), decisions

    rightly = folding._on_run_finished
    return {(folding, "_on_run_finished"): on_unknown}


def never_close_again() -> Patches:
    """A run whose owner died before it wrote the outcome is not closed by the next one."""
    return {(folding, "_on_closing"): lambda partition, _run, _outcome, _now: (partition, ())}


def mark_done_before_the_result() -> Patches:
    """A worker passes a task on when its result is on its way."""

    async def publish(self: Any, found: Any) -> None:
        for report in found:
            await self._around.producer.send(run_record(EVENTS, report.event))
        await self._around.claims.finish([self._done(report.attempt) for report in found])

    return {(worker_handlers.TaskHandler, "publish"): publish}


def restore_no_timers() -> Patches:
    """A new owner has the state, and forgets when its runs are due."""
    return {(handlers.Owned, "__post_init__"): lambda _self: None}


def restore_no_memory() -> Patches:
    """A snapshot holds open runs, and not those that are over."""

    async def forgetful(self: Any, partition: int, ref: Any) -> Any:
        version = await load(self, partition, ref)
        if version is None:
            return None
        finished = memory.Memory[str](version.state.finished.window_ms)
        return version._replace(state=replace(version.state, finished=finished))

    load = snapshots.Snapshots.load
    return {(snapshots.Snapshots, "load"): forgetful}


BUGS: Mapping[str, Callable[[], Patches]] = {
    bug.__name__: bug
    for bug in (
        forget_finished_runs,
        respond_before_the_marker,
        act_before_caught_up,
        act_on_what_was_acted_upon,
        trust_the_local_clock,
        load_the_newest_snapshot,
        commit_before_the_acknowledgement,
        count_instead_of_a_set,
        ignore_the_attempt,
        commit_the_newest_plus_one,
        charge_every_event,
        pass_a_task_before_its_result,
        publish_the_last_outcome,
        never_close_again,
        mark_done_before_the_result,
        restore_no_timers,
        restore_no_memory,
    )
}


@contextmanager
def infected(bug: str) -> Iterator[None]:
    """The services have this bug while the block runs."""
    with ExitStack() as stack:
        for (owner, name), changed in BUGS[bug]().items():
            stack.enter_context(patch.object(owner, name, changed))
        yield


def names() -> Sequence[str]:
    """Of all bugs."""
    return tuple(BUGS)
