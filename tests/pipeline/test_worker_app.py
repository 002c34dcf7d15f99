"""A worker process that ends because a component failed, on the in-memory plane: whose claims it gives back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from schemas.tasks import InferenceTask
from schemas.topics import EVENTS, FLEET
from services.chassis import app as chassis
from services.chassis.app import EXIT_FAILED, App
from services.chassis.kafka.types import Appended, Outgoing
from services.chassis.settings import KafkaSettings, PlaneSettings, RedisSettings
from services.worker import app as module
from services.worker import engine_life
from services.worker.adapters.memory_claims import InMemoryClaimStore
from services.worker.domain.engine import EngineUnavailable
from services.worker.domain.ports import Verdict
from services.worker.settings import WorkerSettings
from tests.pipeline.test_worker_wiring import Plane, RecordingEngine, claim_of, queue_of, until

HANGS = {"simulate": {"hang": True}}


class NoRedis:
    """Nothing to connect to."""

    async def aclose(self) -> None: ...


class Process:
    """A worker of two queues, as its composition root builds it, but for what Kafka and Redis keep."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plane = plane = Plane(queue_of("llm"), queue_of("embedding"))
        plane.kafka.create_topic(FLEET, 1)
        self.producer = plane.kafka.producer()
        self.engines = {name: RecordingEngine(queue) for name, queue in plane.queues.items()}
        self._app = App(
            "worker", "host-worker-1", WorkerSettings(), PlaneSettings(home=home), KafkaSettings(), RedisSettings()
        )  # fmt: skip

        async def configuration(*_: object) -> module.Configured:
            return module.Configured(list(plane.queues.values()))

        monkeypatch.setattr(module, "_configuration", configuration)
        monkeypatch.setattr(module, "_engine", lambda _, queue: self.engines[queue.model_class])
        monkeypatch.setattr(module, "connect", lambda _: NoRedis())
        monkeypatch.setattr(module, "RedisClaimStore", lambda _, owner: InMemoryClaimStore(plane.shelf, owner))
        monkeypatch.setattr(module, "RedisDeadRuns", lambda _: plane.dead_runs)
        monkeypatch.setattr(module, "AioKafkaProducer", lambda _: self.producer)
        monkeypatch.setattr(module, "AioKafkaConsumer", lambda _, *given: plane.kafka.consumer(*given))
        monkeypatch.setattr(chassis, "_end_after", lambda _: None)  # it would end the tests

    @asynccontextmanager
    async def fails(self, *tasks: InferenceTask) -> AsyncIterator[None]:
        """Its end, which is brought about while it runs these."""
        living = asyncio.create_task(self._app.live(partial(module.serve, labels=list(self.plane.queues))))
        self.plane.put(*tasks)
        for task in tasks:
            await until(lambda asked=task.task_id, of=task.model_class: asked in self.engines[of].asked)  # type: ignore[misc]
        yield
        assert await asyncio.wait_for(living, 5) == EXIT_FAILED

    async def verdict(self, task: InferenceTask) -> Verdict:
        """What its next worker is told."""
        [answer] = await InMemoryClaimStore(self.plane.shelf, "host-worker-2").claim([claim_of(task)])
        return answer.verdict

    def deaths(self, task: InferenceTask) -> int:
        """How many workers died of it."""
        entry = self.plane.shelf.find(claim_of(task))
        assert entry is not None
        return entry.deaths


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(tmp_path, monkeypatch)


async def test_tasks_have_not_killed_a_worker_that_ends_for_an_engine_that_does_not_start(process: Process) -> None:
    gone, task = asyncio.Event(), process.plane.task(1, input=HANGS)

    async def start() -> None:
        await gone.wait()
        raise EngineUnavailable("gone")

    process.engines["embedding"].start = start  # type: ignore[method-assign]
    async with process.fails(task):
        gone.set()
    assert await process.verdict(task) is Verdict.RUN
    assert process.deaths(task) == 0


async def test_tasks_whose_engine_is_lost_may_have_done_it(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_life, "HEALTH_EVERY_S", 0.01)
    monkeypatch.setattr(engine_life, "HEAL_TIMEOUT_S", 0.0)  # given up at the first failure
    killer = process.plane.task(1, input=HANGS)
    innocent = process.plane.task(2, "embedding", input=HANGS)

    async def ill(timeout_s: float = 5.0) -> None:
        raise EngineUnavailable("ill")

    async with process.fails(killer, innocent):
        process.engines["llm"].health = ill  # type: ignore[method-assign]
        process.engines["llm"].start = ill  # type: ignore[method-assign]
    assert await process.verdict(killer) is Verdict.HELD
    assert await process.verdict(innocent) is Verdict.RUN
    assert process.deaths(innocent) == 0


async def test_a_task_whose_report_fails_may_be_what_ends_the_worker(process: Process) -> None:
    killer, innocent = process.plane.task(1), process.plane.task(2, "embedding", input=HANGS)
    send_all, both_run = process.producer.send_all, asyncio.Event()

    async def broken(records: Sequence[Outgoing]) -> Sequence[Appended]:
        if records[0].topic == EVENTS:
            await both_run.wait()
            raise RuntimeError("a bug")
        return await send_all(records)

    process.producer.send_all = broken  # type: ignore[method-assign]
    async with process.fails(killer, innocent):
        both_run.set()
    assert await process.verdict(killer) is Verdict.HELD
    assert await process.verdict(innocent) is Verdict.RUN


async def test_when_the_broker_refuses_a_record_any_task_may_have_done_it(process: Process) -> None:
    tasks = process.plane.task(1, input=HANGS), process.plane.task(2, "embedding", input=HANGS)
    async with process.fails(*tasks):
        process.producer.die()
    assert [await process.verdict(task) for task in tasks] == [Verdict.HELD, Verdict.HELD]
