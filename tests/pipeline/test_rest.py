"""A worker that rests: its tasks end first, it leaves its group and keeps no claim, and it works again when woken."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from schemas.events import StepCompleted
from schemas.fleet import BreakerState, WorkerStatus
from services.chassis.health import ASLEEP
from services.chassis.kafka.types import ProducerDeadError
from services.worker.desk import MAX_UNFINISHED
from services.worker.domain.ports import Answer, Claim
from services.worker.rest import Rest
from tests.pipeline.test_worker_wiring import LLM, Plane, Worker, claim_of, queue_of, until


class Sleeper(Worker):
    """A worker of one queue that a test puts to sleep."""

    @property
    def state(self) -> str:
        return self.members["llm"].status(self.name).state

    @property
    def is_resting(self) -> bool:
        return self.members["llm"].why_not_ready() == ASLEEP

    def members_of_group(self) -> int:
        return len(self.plane.kafka.group(self.plane.queues["llm"].group)._members)


@asynccontextmanager
async def sleeper(plane: Plane, *, asleep: bool = False) -> AsyncIterator[Sleeper]:
    worker = Sleeper(plane, "worker-1", *plane.queues.values(), rest=Rest(wanted=asleep))
    running = asyncio.create_task(worker.run())
    try:
        await until(lambda: worker.is_resting if asleep else worker.members["llm"].why_not_ready() is None)
        yield worker
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_one_that_sleeps_takes_nothing_and_answers_when_it_is_woken() -> None:
    plane = Plane(LLM)
    async with sleeper(plane) as worker:
        worker.rest.begin()
        await until(lambda: worker.is_resting)
        assert (worker.state, worker.members_of_group()) == ("asleep", 0)
        task = plane.task(1)
        plane.put(task)
        worker.rest.end()
        assert isinstance(await plane.event(task), StepCompleted)
        assert worker.state == "warm"
        await until(lambda: plane.lag(LLM) == 0)


async def test_its_tasks_end_before_it_sleeps_and_others_take_what_waits() -> None:
    llm = queue_of("llm", slots=1, latency_ms=1)
    plane = Plane(llm)
    long = plane.task(1, input={"simulate": {"latency_ms": 2_500}})
    async with sleeper(plane) as worker, plane.worker("worker-2") as other:
        partition = sorted(worker.members["llm"].status(worker.name).committed)[0]
        plane.put(long, partition=partition)
        await until(lambda: worker.engines["llm"].asked == [long.task_id])
        worker.rest.begin()
        await until(lambda: worker.members_of_group() == 1)
        waiting = plane.task(2)
        plane.put(waiting, partition=partition)
        assert isinstance(await plane.event(waiting), StepCompleted)
        assert (worker.state, len(plane.events())) == ("draining", 1)
        assert isinstance(await plane.event(long), StepCompleted)
        await until(lambda: worker.is_resting)
        await until(lambda: plane.lag(llm) == 0)
        assert other.engines["llm"].asked == [waiting.task_id]
        assert worker.engines["llm"].cancelled == []
        assert plane.shelf.find(claim_of(long)) is not None, "it is done, and known to be"


async def test_a_result_that_cannot_be_told_ends_it_also_while_it_drains() -> None:
    llm = queue_of("llm", slots=1, latency_ms=1)
    plane = Plane(llm)
    worker = Sleeper(plane, "worker-1", llm)
    running = asyncio.create_task(worker.members["llm"].run())
    await until(lambda: worker.members["llm"].why_not_ready() is None)
    plane.put(plane.task(1, input={"simulate": {"latency_ms": 700}}))
    await until(lambda: worker.engines["llm"].asked != [])
    worker.rest.begin()
    await until(lambda: worker.members_of_group() == 0)
    worker.producer.die()
    with pytest.raises(ProducerDeadError):
        await asyncio.wait_for(running, 5)


async def test_one_that_is_woken_while_it_drains_works_on_at_once() -> None:
    llm = queue_of("llm", slots=3, latency_ms=1)
    plane = Plane(llm)
    async with sleeper(plane) as worker:
        long = plane.task(1, input={"simulate": {"latency_ms": 60_000}}, deadline_ms=120_000)
        plane.put(long)
        await until(lambda: worker.engines["llm"].asked == [long.task_id])
        worker.rest.begin()
        await until(lambda: worker.members_of_group() == 0)
        assert worker.state == "draining"
        worker.rest.end()
        task = plane.task(2)
        plane.put(task)
        assert isinstance(await plane.event(task), StepCompleted)
        assert worker.engines["llm"].cancelled == []


async def test_one_that_starts_asleep_has_proven_its_engine_and_never_joined() -> None:
    plane = Plane(LLM)
    async with sleeper(plane, asleep=True) as worker:
        assert (worker.state, worker.members_of_group()) == ("asleep", 0)
        told = list(worker.members["llm"].news(worker.name))
        assert [type(status) for status in told] == [WorkerStatus], "of its breaker nothing is known"
        worker.rest.end()
        await until(lambda: worker.members["llm"].why_not_ready() is None)
        assert BreakerState in {type(status) for status in worker.members["llm"].news(worker.name)}


async def test_one_that_sleeps_ends_at_once_when_it_is_told_to() -> None:
    plane = Plane(LLM)
    async with sleeper(plane, asleep=True) as worker:
        await asyncio.wait_for(worker.drain(timeout_s=60), 1)
        assert worker.state == "draining"


async def test_the_last_word_counts_however_quickly_they_follow_each_other() -> None:
    plane = Plane(LLM)
    async with sleeper(plane) as worker:
        for _ in range(3):
            worker.rest.begin()
            worker.rest.end()
            await asyncio.sleep(0)
            worker.rest.begin()
        await until(lambda: worker.is_resting)
        for _ in range(3):
            worker.rest.end()
            worker.rest.begin()
            await asyncio.sleep(0)
            worker.rest.end()
        await until(lambda: worker.members["llm"].why_not_ready() is None)


async def test_what_was_given_away_before_it_slept_does_not_wait_for_its_waking() -> None:
    """Its claim is answered late: another worker has the task by then."""
    plane = Plane(LLM)
    async with sleeper(plane) as worker, plane.worker("worker-2") as other:
        partition = sorted(worker.members["llm"].status(worker.name).committed)[0]
        claim, asked, go = worker.claims.claim, asyncio.Event(), asyncio.Event()

        async def late(claims: Sequence[Claim]) -> Sequence[Answer]:
            asked.set()
            await go.wait()
            return await claim(claims)

        worker.claims.claim = late  # type: ignore[method-assign]
        task = plane.task(1, input={"simulate": {"hang": True}})
        plane.put(task, partition=partition)
        await asked.wait()
        worker.rest.begin()
        await until(lambda: other.engines["llm"].asked == [task.task_id])
        go.set()
        await until(lambda: worker.is_resting)
        assert worker.members["llm"]._desk.room == MAX_UNFINISHED + LLM.slots
