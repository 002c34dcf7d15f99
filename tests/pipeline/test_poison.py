"""Tasks that lost their workers, in memory: suspects run alone, and only one that died alone is put aside."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from schemas.base import Priority
from schemas.errors import ErrorCode
from schemas.events import StepCompleted
from schemas.redis_keys import EndedRun
from schemas.tasks import InferenceTask
from services.chassis.kafka.in_memory import InMemoryConsumer
from services.chassis.kafka.types import ConsumerSettings, RebalanceListener, Record, TopicPartition
from services.worker import solitude
from services.worker.domain.engine import Call, Outcome
from services.worker.domain.ports import DEATHS
from tests.pipeline.test_worker_wiring import (
    EMBEDDING,
    LLM,
    Plane,
    Worker,
    claim_of,
    failure,
    queue_of,
    until,
)

INTERACTIVE = Priority.INTERACTIVE


def lost(plane: Plane, task: InferenceTask, *, deaths: int = DEATHS, alone: bool = False) -> None:
    """Its last holder died a moment ago, others before."""
    plane.shelf.put(claim_of(task), "worker-0", 0.0, deaths=deaths - 1, alone=alone)


class Beside:
    """Watches the engines of a worker: what runs at the same moment."""

    def __init__(self, worker: Worker) -> None:
        self.running: set[str] = set()
        self.together: list[set[str]] = []
        for engine in worker.engines.values():
            self._watch(engine)

    def _watch(self, engine: object) -> None:
        infer = engine.infer  # type: ignore[attr-defined]

        async def watched(calls: Sequence[Call]) -> list[Outcome]:
            ids = {call.task_id for call in calls}
            self.running |= ids
            self.together.append(set(self.running))
            try:
                outcomes: list[Outcome] = await infer(calls)
                return outcomes
            finally:
                self.running -= ids

        engine.infer = watched  # type: ignore[attr-defined]

    def was_alone(self, task: InferenceTask) -> bool:
        """Whether the engines had it, and never with another."""
        seen = [group for group in self.together if task.task_id in group]
        return bool(seen) and all(group == {task.task_id} for group in seen)


async def test_a_task_that_lost_two_workers_runs_alone_and_succeeds() -> None:
    llm = queue_of("llm", latency_ms=20)
    plane = Plane(llm)
    suspect, others = plane.task(1), [plane.task(n) for n in range(2, 40)]
    lost(plane, suspect)
    async with plane.worker() as worker:
        beside = Beside(worker)
        plane.put(*others[:20], suspect, *others[20:])
        for task in (suspect, *others):
            assert isinstance(await plane.event(task), StepCompleted)
        await until(lambda: plane.lag(llm) == 0)
    assert beside.was_alone(suspect)
    assert max(len(group) for group in beside.together) > 1
    assert plane.kafka.records(f"{llm.topic}-dlq") == []


async def test_a_task_that_lost_one_worker_runs_as_usual() -> None:
    llm = queue_of("llm", latency_ms=300)
    plane = Plane(llm)
    once, other = plane.task(1), plane.task(2)
    lost(plane, once, deaths=1)
    async with plane.worker() as worker:
        beside = Beside(worker)
        plane.put(once, other)
        await until(lambda: {once.task_id, other.task_id} in beside.together)


async def test_that_it_is_alone_is_on_record_before_it_starts() -> None:
    plane = Plane(LLM)
    suspect, seen = plane.task(1), []
    lost(plane, suspect)
    async with plane.worker() as worker:
        engine, infer = worker.engines["llm"], worker.engines["llm"].infer

        async def looking(calls: Sequence[Call]) -> list[Outcome]:
            entry = plane.shelf.get(claim_of(suspect))
            seen.append(entry is not None and entry.alone)
            return await infer(calls)

        engine.infer = looking  # type: ignore[method-assign]
        plane.put(suspect)
        await plane.event(suspect)
    assert seen == [True]


async def test_a_task_that_died_alone_is_put_aside_unchanged_and_fails_its_step() -> None:
    plane = Plane(LLM)
    poison, neighbour = plane.task(1), plane.task(2)
    lost(plane, poison, alone=True)
    async with plane.worker() as worker:
        plane.put(poison, neighbour, partition=4)
        assert failure(await plane.event(poison)) == (ErrorCode.ENGINE_FAILED, False)
        assert isinstance(await plane.event(neighbour), StepCompleted)
        await until(lambda: plane.lag(LLM) == 0)
        assert worker.engines["llm"].asked == [neighbour.task_id]
    [letter] = plane.kafka.records(f"{LLM.topic}-dlq")
    original = plane.kafka.log(TopicPartition(LLM.topic, 4))[0]
    assert (letter.key, letter.value) == (original.key, original.value)
    assert set(original.headers) <= set(letter.headers)
    assert letter.header("x-error-class") == "poison"
    assert (letter.header("x-task-id"), letter.header("x-attempt")) == (poison.task_id, "1")


async def test_poison_that_was_put_aside_is_skipped_when_it_comes_again() -> None:
    plane = Plane(LLM)
    poison = plane.task(1)
    lost(plane, poison, alone=True)
    async with plane.worker():
        plane.put(poison)
        await until(lambda: plane.lag(LLM) == 0)
        plane.put(poison)
        await until(lambda: plane.lag(LLM) == 0)
    assert len(plane.kafka.records(f"{LLM.topic}-dlq")) == len(plane.events()) == 1


async def test_all_who_died_together_run_alone_one_after_another() -> None:
    llm = queue_of("llm", slots=4, latency_ms=10)
    plane = Plane(llm)
    suspects = [plane.task(n) for n in range(8)]
    for suspect in suspects:
        lost(plane, suspect)
    async with plane.worker() as worker:
        beside = Beside(worker)
        plane.put(*suspects)
        for suspect in suspects:
            assert isinstance(await plane.event(suspect), StepCompleted)
    assert all(beside.was_alone(suspect) for suspect in suspects)


async def test_a_suspect_waits_for_a_long_task_and_what_comes_later_waits_for_both() -> None:
    llm = queue_of("llm", latency_ms=5)
    plane = Plane(llm)
    long, suspect, later = plane.task(1, input={"simulate": {"latency_ms": 500}}), plane.task(2), plane.task(3)
    lost(plane, suspect)
    async with plane.worker() as worker:
        beside = Beside(worker)
        plane.put(long)
        await until(lambda: long.task_id in beside.running)
        plane.put(suspect)
        await until(lambda: worker.solitude.closed)
        plane.put(later)
        for task in (long, suspect, later):
            assert isinstance(await plane.event(task), StepCompleted)
    assert beside.together == [{long.task_id}, {suspect.task_id}, {later.task_id}]


async def test_a_suspect_that_waits_for_a_long_task_holds_up_the_others_for_a_turn_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solitude, "TURN_S", 0.1)
    llm = queue_of("llm", latency_ms=5)
    plane = Plane(llm, EMBEDDING)
    long, suspect = plane.task(1, input={"simulate": {"hang": True}}), plane.task(2)
    others = [plane.task(3), plane.task(4, "embedding")]
    lost(plane, suspect)
    async with plane.worker() as worker:
        beside = Beside(worker)
        plane.put(long)
        await until(lambda: long.task_id in beside.running)
        plane.put(suspect)
        await until(lambda: worker.solitude.closed)
        plane.put(*others)
        for task in others:
            assert isinstance(await plane.event(task), StepCompleted)
        worker.ended.add(EndedRun(long.run_id, long.deadline_at))
        assert isinstance(await plane.event(suspect, timeout_s=10.0), StepCompleted)
    assert beside.was_alone(suspect)


async def test_a_suspect_whose_time_is_up_while_it_waits_fails_and_holds_nobody_up() -> None:
    llm = queue_of("llm", latency_ms=5)
    plane = Plane(llm)
    long, suspect = plane.task(1, input={"simulate": {"hang": True}}), plane.task(2, deadline_ms=300)
    lost(plane, suspect)
    async with plane.worker() as worker:
        plane.put(long)
        await until(lambda: worker.engines["llm"].asked == [long.task_id])
        plane.put(suspect)
        assert failure(await plane.event(suspect)) == (ErrorCode.DEADLINE_EXCEEDED, False)
        later = plane.task(3)
        plane.put(later)
        assert isinstance(await plane.event(later), StepCompleted)
        assert worker.engines["llm"].asked == [long.task_id, later.task_id]


async def test_a_suspect_is_alone_on_all_queues_of_its_worker() -> None:
    llm = queue_of("llm", latency_ms=300)
    plane = Plane(llm, EMBEDDING)
    suspect = plane.task(1)
    lost(plane, suspect)
    async with plane.worker() as worker:
        beside = Beside(worker)
        plane.put(suspect)
        await until(lambda: suspect.task_id in beside.running)
        embeddings = [plane.task(n, "embedding", lane=INTERACTIVE) for n in range(100, 140)]
        plane.put(*embeddings)
        for task in (suspect, *embeddings):
            assert isinstance(await plane.event(task), StepCompleted)
    assert beside.was_alone(suspect)


async def test_a_suspect_that_waits_on_a_worker_told_to_stop_is_the_next_ones_and_no_death() -> None:
    llm = queue_of("llm", latency_ms=5)
    plane = Plane(llm)
    long, suspect = plane.task(1, input={"simulate": {"hang": True}}, deadline_ms=1_000), plane.task(2)
    lost(plane, suspect)
    async with plane.worker("worker-1") as first:
        plane.put(long)
        await until(lambda: first.engines["llm"].asked == [long.task_id])
        plane.put(suspect)
        await until(lambda: first.solitude.closed)
        await first.drain(0.05)
    entry = plane.shelf.find(claim_of(suspect))
    assert entry is not None
    assert (entry.deaths, entry.alone) == (DEATHS, False)
    async with plane.worker("worker-2"):
        assert isinstance(await plane.event(suspect), StepCompleted)


async def test_without_the_store_suspects_run_and_nothing_hangs() -> None:
    plane = Plane(LLM)
    suspect, others = plane.task(1), [plane.task(n) for n in range(2, 10)]
    lost(plane, suspect)
    async with plane.worker() as worker:
        engine, infer = worker.engines["llm"], worker.engines["llm"].infer

        async def losing(calls: Sequence[Call]) -> list[Outcome]:
            plane.shelf.away = True
            return await infer(calls)

        engine.infer = losing  # type: ignore[method-assign]
        plane.put(suspect, *others)
        for task in (suspect, *others):
            assert isinstance(await plane.event(task), StepCompleted)


async def test_a_worker_does_not_spin_while_a_lease_has_ended_and_its_slots_are_taken() -> None:
    llm = queue_of("llm", slots=1, latency_ms=5)
    plane, polls = Plane(llm), []

    def counted(settings: ConsumerSettings, listener: RebalanceListener) -> InMemoryConsumer:
        consumer = plane.kafka.consumer(settings, listener)
        poll = consumer.poll

        async def polled(*args: Any, **options: Any) -> Sequence[Record]:
            polls.append(1)
            return await poll(*args, **options)

        consumer.poll = polled  # type: ignore[method-assign]
        return consumer

    held, long = plane.task(1), plane.task(2, input={"simulate": {"latency_ms": 600}})
    plane.shelf.put(claim_of(held), "worker-0", 0.1)
    worker = Worker(plane, "worker-1", llm, consumers=counted)
    running = asyncio.create_task(worker.run())
    await worker.until_ready()
    plane.put(held)
    await until(lambda: plane.shelf.get(claim_of(held)) is None)
    plane.put(long)
    await until(lambda: worker.engines["llm"].asked == [long.task_id])
    polls.clear()
    await plane.event(long)
    assert len(polls) < 50
    assert isinstance(await plane.event(held), StepCompleted)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
