"""The tasks on this worker: entered into slots, claimed, run in batches beside the loop, reported, and closed."""

import asyncio
import math
import time
from asyncio import Future, Task
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from schemas.base import LogTime, Priority
from schemas.models import Queue
from schemas.redis_keys import EndedRun
from schemas.tasks import InferenceTask
from services.chassis.kafka.types import Record
from services.chassis.logging import reason
from services.worker.domain.batches import MicroBatcher
from services.worker.domain.engine import DeadlineExceeded, EngineError
from services.worker.domain.lanes import LANES
from services.worker.domain.parking import Parking
from services.worker.domain.ports import Answer, Verdict
from services.worker.domain.slots import Slots
from services.worker.ended_runs import EndedRuns
from services.worker.handlers import Attempt, Report, TaskHandler
from services.worker.solitude import Solitude

MAX_UNFINISHED = 500
"""Tasks held beyond the slots: parked, being refused, or waiting for an acknowledgement."""
LEASE_SLACK_S = 0.05
FEW = 4
GATHER_S = 0.002
"""While more than a few results are on their way, so long the next one waits for company. The branches of a single
run do not wait for each other."""
PARK_S = 1.0
"""A parked task is asked for again this often: its holder may have ended, or given it up."""


@dataclass(slots=True, eq=False)
class Entry:
    """An attempt, and what must be told when it ends."""

    attempt: Attempt
    record: Record
    """As it came, in case it must be put aside."""
    passed: list[Callable[[], None]]
    """Lets the watermark pass: one for each delivery, for a task may be delivered again while it runs."""
    term: int = 0
    """Of its last delivery."""
    in_slot: bool = False


class Desk:
    """One queue's tasks between their delivery and the end of their work."""

    def __init__(
        self,
        queue: Queue,
        handler: TaskHandler,
        *,
        slots: Slots,
        ended: EndedRuns,
        solitude: Solitude,
        max_batch: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_batch`: calls the engine gains from taking together."""
        self._handler = handler
        self._slots = slots
        self._ended = ended
        self._solitude = solitude
        self._monotonic = monotonic
        self._batcher = MicroBatcher[Entry](min(queue.batch.max_size, max_batch), queue.batch.max_wait / 1_000)
        self._parking = {lane: Parking[Entry]() for lane in LANES}
        self._entries: dict[tuple[str, LogTime], Entry] = {}
        """By task id, which an id's next life has again, and the run's deadline, which it has not."""
        self._by_run: defaultdict[str, list[Entry]] = defaultdict(list)
        self._work: set[Task[None]] = set()
        self._handed_in: list[tuple[Sequence[Entry], Sequence[Report]]] = []
        self._letters = 0
        self._term = 0
        """Goes up whenever what has not begun is given away: what was delivered before is another's to begin."""
        self._flying = 0
        self._sending = 0
        self.changed = asyncio.Event()
        """A slot was given back, or something ended."""
        self.failed: Future[None] = asyncio.get_running_loop().create_future()
        """Fails when the process must end: a result could not be appended."""
        ended.listen(self._end_run)
        solitude.listen(self.changed.set)

    @property
    def room(self) -> int:
        """How many more tasks may be received: none while a task is to be alone."""
        if self._solitude.closed:
            return 0
        return max(0, MAX_UNFINISHED + self._slots.total - len(self._entries) - self._letters)

    @property
    def due_in(self) -> float:
        """Seconds until something here must be done; infinite when nothing waits."""
        now = self._monotonic()
        waits = [lot.due_in(now) for lot in self._parking.values() if self._may_enter(lot.first)]
        if not self._solitude.closed:
            waits.append(self._batcher.due_in(now))
        return min((wait for wait in waits if wait is not None), default=math.inf)

    def receive(self, record: Record, lane: Priority, passed: Callable[[], None]) -> None:
        """A record was polled: `passed` is called when its work has ended."""
        try:
            task = InferenceTask.model_validate_json(record.value or b"")
        except ValidationError as error:
            self._letters += 1
            self._spawn(self._dead_letter(record, lane, reason(error).lstrip(": "), passed))
            return
        known = self._entries.get(_key(task))
        if known is not None:
            known.passed.append(passed)
            known.term = self._term
            return
        entry = Entry(Attempt(task, record.timestamp, lane), record, [passed], self._term)
        self._entries[_key(task)] = entry
        self._by_run[task.run_id].append(entry)
        self._enter(entry)

    def enter_parked(self) -> None:
        """Tasks whose time has come are entered, the top lane's first, as far as slots are free or not needed."""
        now = self._monotonic()
        for lot in self._parking.values():
            while self._may_enter(lot.peek(now)):
                self._enter(lot.pop())

    def _may_enter(self, entry: Entry | None) -> bool:
        if entry is None:
            return False
        return self._slots.free(entry.attempt.lane) > 0 or self._handler.refusal(entry.attempt) is not None

    def start(self) -> bool:
        """Starts every batch that should not wait; whether there was one."""
        batches = []
        while not self._solitude.closed and (batch := self._batcher.next(self._monotonic(), idle=not self._flying)):
            self._flying += 1
            self._solitude.enter()
            batches.append(batch)
        if batches:
            self._spawn(self._begin(batches))
        return bool(batches)

    def give_up_waiting(self) -> None:
        """Lets go of what has not begun, and of what would be parked later: their next owner begins them."""
        self._term += 1
        parked = [entry for lot in self._parking.values() for entry in lot.clear()]
        for entry in [*self._batcher.clear(), *parked]:
            self._leave_slot(entry)
            self._forget(entry)

    async def drain(self, timeout_s: float, quiet_s: float = math.inf) -> None:
        """Waits until everything under way has ended, but no longer, nor when nothing has ended for `quiet_s`."""
        over_at = self._monotonic() + timeout_s
        while self._work and (left_s := over_at - self._monotonic()) > 0:
            wait_s = min(left_s, quiet_s)
            ended, _ = await asyncio.wait(self._work, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                return

    async def abandon(self) -> None:
        """Stops everything under way; nothing is said about it."""
        for task in self._work:
            task.cancel()
        await self.drain(1.0)

    def disown(self) -> None:
        """The process ends, and a task here may have done it: that shall count, so no claim is given back."""
        for entry in self._entries.values():
            self._handler.disown(entry.attempt)

    def _enter(self, entry: Entry) -> None:
        attempt = entry.attempt
        if attempt.over or self._ended.covers(attempt.task.run_id, attempt.task.deadline_at):
            self._handler.drop(attempt, "dropped")
            self._close(entry)
        elif (fault := self._handler.refusal(attempt)) is not None:
            self._spawn(self._turn_away(entry, fault))
        elif not self._slots.free(attempt.lane):  # it was polled to be refused, and by now the breaker lets it pass
            self._park(entry, 0.0)
        else:
            self._slots.take(attempt.lane)
            entry.in_slot = True
            self._batcher.add(entry, self._monotonic())

    async def _begin(self, batches: Sequence[Sequence[Entry]]) -> None:
        """Claims them together; then each is an engine call of its own."""
        try:
            answers = iter(await self._handler.claim([entry.attempt for batch in batches for entry in batch]))
        except BaseException:
            for batch in batches:
                self._leave(batch)
            raise
        for batch in batches:
            mine = [entry for entry in batch if self._may_run(entry, next(answers))]
            if mine:
                self._spawn(self._run(mine))
            else:
                self._leave(())

    async def _run(self, batch: Sequence[Entry]) -> None:
        try:
            reports = await self._handler.execute([entry.attempt for entry in batch])
        finally:
            self._leave(batch)
        self._hand_in(batch, reports)

    def _leave(self, batch: Sequence[Entry]) -> None:
        """A call is over, or was not made after all."""
        self._flying -= 1
        self._solitude.leave()
        for entry in batch:
            self._leave_slot(entry)

    def _hand_in(self, entries: Sequence[Entry], reports: Sequence[Report]) -> None:
        """Sends them off, together with what else ends in this turn of the loop."""
        if not self._handed_in:
            self._spawn(self._send())
        self._handed_in.append((entries, reports))

    async def _send(self) -> None:
        await asyncio.sleep(GATHER_S if self._sending > FEW else 0)
        ended, self._handed_in = self._handed_in, []
        self._sending += 1
        try:
            await self._handler.publish([report for _, reports in ended for report in reports])
        finally:
            self._sending -= 1
        for entries, _ in ended:
            for entry in entries:
                self._close(entry)

    def _may_run(self, entry: Entry, answer: Answer) -> bool:
        """Otherwise it waits outside the slots, or its work is over."""
        if answer.verdict is Verdict.RUN:
            return True
        if answer.verdict is Verdict.ALONE:
            self._spawn(self._run_alone(entry))
            return False
        self._leave_slot(entry)
        if answer.verdict is Verdict.HELD:
            self._park(entry, answer.wait_s + LEASE_SLACK_S)
        elif answer.verdict is Verdict.POISON:
            self._spawn(self._put_aside(entry))
        else:
            self._handler.drop(entry.attempt, "repeated" if answer.verdict is Verdict.DONE else "dropped")
            self._close(entry)
        return False

    def _park(self, entry: Entry, wait_s: float) -> None:
        """For a while; for good, where it was given away meanwhile."""
        if entry.term != self._term:
            self._forget(entry)
            return
        until_s = self._monotonic() + min(wait_s, PARK_S, self._handler.left_s(entry.attempt))
        self._parking[entry.attempt.lane].park(entry, until_s)

    async def _run_alone(self, entry: Entry) -> None:
        """A suspect keeps its slot while it waits for what runs; if it dies, that it was alone is on record."""
        try:
            async with self._solitude.alone(self._handler.left_s(entry.attempt)):
                if not await self._handler.isolate(entry.attempt):
                    self._park(entry, 0.0)
                    return
                await self._handler.publish(await self._handler.execute([entry.attempt]))
        except TimeoutError:
            await self._refuse(entry, DeadlineExceeded("the step's time was up before it could run alone"))
            return
        finally:
            self._leave_slot(entry)
        self._close(entry)

    async def _put_aside(self, entry: Entry) -> None:
        await self._handler.put_aside(entry.record, entry.attempt)
        self._close(entry)

    async def _turn_away(self, entry: Entry, fault: EngineError) -> None:
        """Refuses it without a slot, unless another worker runs it: there it may succeed."""
        if not isinstance(fault, DeadlineExceeded):
            [answer] = await self._handler.claim([entry.attempt])
            # A suspect that is not run need not be alone.
            if answer.verdict is not Verdict.ALONE and not self._may_run(entry, answer):
                return
        await self._refuse(entry, fault)

    async def _refuse(self, entry: Entry, fault: EngineError) -> None:
        await self._handler.publish([self._handler.refuse(entry.attempt, fault)])
        self._close(entry)

    async def _dead_letter(self, record: Record, lane: Priority, why: str, passed: Callable[[], None]) -> None:
        await self._handler.dead_letter(record, lane, why)
        self._letters -= 1
        passed()

    def _end_run(self, run: EndedRun) -> None:
        for entry in self._by_run.get(run.run_id, ()):
            if entry.attempt.task.deadline_at == run.deadline_at:
                entry.attempt.end_run()

    def _close(self, entry: Entry) -> None:
        self._forget(entry)
        for passed in entry.passed:
            passed()

    def _forget(self, entry: Entry) -> None:
        task = entry.attempt.task
        del self._entries[_key(task)]
        of_run = self._by_run[task.run_id]
        of_run.remove(entry)
        if not of_run:
            del self._by_run[task.run_id]

    def _leave_slot(self, entry: Entry) -> None:
        if entry.in_slot:
            entry.in_slot = False
            self._slots.release(entry.attempt.lane)
            self.changed.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._ended_work)

    def _ended_work(self, task: Task[None]) -> None:
        self._work.discard(task)
        self.changed.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.disown()
            self.failed.set_exception(error)


def _key(task: InferenceTask) -> tuple[str, LogTime]:
    return task.task_id, task.deadline_at
