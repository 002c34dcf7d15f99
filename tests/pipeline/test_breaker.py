"""Circuit breakers in memory: a worker whose engine fails, hangs or slows down, and the runs that need it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.testing import InProcessPlane, in_process
from schemas.base import Priority, RunStatus
from schemas.errors import ErrorCode
from schemas.events import StepCompleted
from schemas.fleet import BreakerState, CircuitState
from schemas.models import Batch, BreakerRules, Queue
from schemas.redis_keys import EndedRun
from schemas.responses import StepReport
from services.chassis.kafka.types import TopicPartition
from services.orchestrator.domain.components import Components
from services.worker import engine_life
from services.worker.adapters.memory_claims import InMemoryClaimStore
from services.worker.circuit import Circuit
from services.worker.domain.breaker import Tally
from services.worker.domain.engine import Call, EngineFailed, Outcome
from services.worker.domain.ports import DEATHS, Done
from tests.pipeline.test_worker_wiring import Plane, Worker, claim_of, failure, queue_of, until

CLOSED, OPEN, HALF_OPEN = CircuitState
FAIL, HANG, SLOW = "fail", "hang", "slow"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_life, "HEAL_EVERY_S", 0.05)
    monkeypatch.setattr(engine_life, "PATIENCE_S", 0.3)


def ailing(kind: str, *, slots: int = 4, for_s: float = 2.0, latency_ms: float = 20, **rules: Any) -> Queue:
    """A queue whose engine is ill from its second second on."""
    outage = {"after_s": 1.0, "for_s": for_s, "kind": kind}
    queue = queue_of("llm", slots=slots, latency_ms=latency_ms, outages=[outage])
    return queue.model_copy(update={"breaker": queue.breaker.model_copy(update={"pause": 200, **rules})})


def state(worker: Worker) -> CircuitState:
    return breaker(worker).state


def breaker(worker: Worker) -> BreakerState:
    return next(news for news in worker.members["llm"].news(worker.name) if isinstance(news, BreakerState))


def gauge(worker: Worker) -> str:
    """The one state whose metric is 1."""
    lines = worker.metrics.exposition().decode().splitlines()
    (line,) = [line for line in lines if line.startswith("headway_breaker_state{") and line.endswith(" 1.0")]
    return line.split('state="')[1].split('"')[0]


async def until_it_would_open(rules: BreakerRules, tally: Tally | None = None) -> None:
    """Until a breaker beside the one under test has opened: for failures, or for a call that does not return."""
    beside = Circuit(rules)
    keeping = asyncio.create_task(beside.keep())
    trial = beside.begin(sum(tally or (1,)))
    if tally is not None:
        beside.end(trial, tally)
    await until(lambda: beside.is_open)
    keeping.cancel()


async def load(plane: Plane, *, rate: float = 50.0) -> None:
    """Tasks one after the other, for ever; their deadlines are far."""
    for number in range(1, 1_000_000):
        plane.put(plane.task(number, deadline_ms=30_000))
        await asyncio.sleep(1 / rate)


@pytest.mark.parametrize("kind", [FAIL, SLOW])
async def test_it_opens_when_the_engine_ails_and_closes_when_it_is_well(kind: str) -> None:
    plane, began = Plane(ailing(kind, for_s=4.0)), time.monotonic()
    async with plane.worker() as worker:
        loading = asyncio.create_task(load(plane))
        assert gauge(worker) == "closed"
        await until(lambda: state(worker) is OPEN, timeout_s=5.0)
        assert gauge(worker) == "open"
        await until(lambda: state(worker) is CLOSED, timeout_s=10.0)
        assert time.monotonic() - began > 5.0, "closed in the midst of the outage"
        loading.cancel()


@pytest.mark.parametrize("kind", [FAIL, HANG])
async def test_tasks_that_are_queued_end_at_once_while_it_is_open(kind: str) -> None:
    """Also when every slot is held by a call that does not return."""
    plane = Plane(ailing(kind, slots=2, for_s=60, slow_call=100, min_calls=2))
    async with plane.worker() as worker:
        await until(lambda: worker.engines["llm"].ails)
        plane.put(*(plane.task(n, deadline_ms=30_000) for n in range(100)))
        await until(lambda: state(worker) is OPEN, timeout_s=5.0)
        await until(lambda: len(plane.events()) >= 98, timeout_s=2.0)
        codes = [failure(event) for event in plane.events()]
        assert {code for code, _ in codes} == {ErrorCode.ENGINE_UNAVAILABLE}
        assert sum(retryable for _, retryable in codes) <= 10, "the retry budget"
        assert len(worker.engines["llm"].asked) <= 4


@asynccontextmanager
async def opened(plane: Plane) -> AsyncIterator[Worker]:
    """A worker whose breaker is open, and whose slots are all held by calls that do not return."""
    async with plane.worker() as worker:
        await until(lambda: worker.engines["llm"].ails)
        plane.put(*(plane.task(n, deadline_ms=30_000) for n in range(100, 104)))
        await until(lambda: state(worker) is OPEN, timeout_s=5.0)
        yield worker


INTERACTIVE_PARTITION = 0
HANGING = {"slots": 2, "for_s": 60, "slow_call": 100, "min_calls": 2, "pause": 10_000}


async def test_a_task_that_runs_on_another_worker_is_not_refused() -> None:
    plane = Plane(ailing(HANG, **HANGING))
    other = InMemoryClaimStore(plane.shelf, "worker-0")
    there, here = plane.task(1), plane.task(2)
    await other.claim([claim_of(there)])
    async with opened(plane):
        plane.put(there, here, partition=INTERACTIVE_PARTITION)
        assert failure(await plane.event(here))[0] is ErrorCode.ENGINE_UNAVAILABLE
        await other.finish([Done(claim_of(there), 10.0)])
        llm = plane.queues["llm"]
        tp = TopicPartition(llm.topic, INTERACTIVE_PARTITION)
        await until(lambda: plane.kafka.group(llm.group).commits[tp].offset == 2)
    assert there.run_id not in {event.run_id for event in plane.events()}


async def test_a_task_whose_worker_died_meanwhile_is_refused_then() -> None:
    plane = Plane(ailing(HANG, **HANGING))
    other = InMemoryClaimStore(plane.shelf, "worker-0")
    there, here = plane.task(1), plane.task(2)
    await other.claim([claim_of(there)])
    async with opened(plane):
        plane.put(there, here, partition=INTERACTIVE_PARTITION)
        await plane.event(here)
        assert there.run_id not in {event.run_id for event in plane.events()}
        plane.shelf.put(claim_of(there), "worker-0", 0.0)
        assert failure(await plane.event(there))[0] is ErrorCode.ENGINE_UNAVAILABLE


async def test_a_suspect_that_is_refused_keeps_nobody_waiting() -> None:
    plane = Plane(ailing(HANG, **HANGING))
    suspect, other = plane.task(1), plane.task(2)
    plane.shelf.put(claim_of(suspect), "worker-0", 0.0, deaths=DEATHS - 1)
    async with opened(plane) as worker:
        plane.put(suspect)
        assert failure(await plane.event(suspect))[0] is ErrorCode.ENGINE_UNAVAILABLE
        assert not worker.solitude.closed
        plane.put(other)
        assert failure(await plane.event(other))[0] is ErrorCode.ENGINE_UNAVAILABLE


async def test_an_open_breaker_sends_nothing_to_the_engine_and_half_open_only_probes() -> None:
    plane = Plane(ailing(SLOW, for_s=60, latency_ms=100))
    async with plane.worker() as worker:
        warm = [plane.task(n) for n in range(4)]
        plane.put(*warm)
        await until(lambda: len(plane.events()) == 4)
        await until(lambda: worker.engines["llm"].ails)
        plane.put(*(plane.task(n) for n in range(10, 30)))
        await until(lambda: state(worker) is OPEN, timeout_s=10.0)  # when the good ones have left the window
        await until(lambda: state(worker) is HALF_OPEN)
        assert breaker(worker).probes == 3
        asked = len(worker.engines["llm"].asked)
        plane.put(*(plane.task(n) for n in range(100, 150)))
        await until(lambda: state(worker) is OPEN)
        assert len(worker.engines["llm"].asked) - asked <= 3


async def test_runs_that_were_cancelled_open_nothing() -> None:
    plane = Plane(ailing(HANG, for_s=60, slow_call=1_000, min_calls=1))
    async with plane.worker() as worker:
        await until(lambda: worker.engines["llm"].ails)
        tasks = [plane.task(n) for n in range(4)]
        plane.put(*tasks)
        await until(lambda: len(worker.engines["llm"].asked) >= 3)
        for task in tasks:
            plane.dead_runs.announce(EndedRun(task.run_id, task.deadline_at))
        await until(lambda: worker.members["llm"].status(worker.name).busy == 0)
        await until_it_would_open(plane.queues["llm"].breaker.model_copy(update={"slow_call": 1_100}))
        assert state(worker) is CLOSED


async def test_callers_faults_open_nothing() -> None:
    plane = Plane(queue_of("llm", latency_ms=1, batch=Batch()))
    async with plane.worker() as worker:
        plane.put(*(plane.task(n, input={"simulate": {"fail": "invalid_input"}}) for n in range(50)))
        await until(lambda: len(plane.events()) == 50)
        await until_it_would_open(plane.queues["llm"].breaker, Tally(bad=50))
        assert state(worker) is CLOSED


async def test_a_task_that_comes_after_the_outage_is_run() -> None:
    plane = Plane(ailing(FAIL, for_s=1.0))
    async with plane.worker() as worker:
        await until(lambda: worker.engines["llm"].ails)
        plane.put(plane.task(1))
        await until(lambda: state(worker) is OPEN)
        await until(lambda: state(worker) is HALF_OPEN)
        later = plane.task(2)
        plane.put(later)
        assert isinstance(await plane.event(later), StepCompleted)


async def test_one_bad_worker_among_good_ones_is_passed_by() -> None:
    queue = queue_of("llm", latency_ms=5)
    lane = queue.lanes.of(Priority.STANDARD)
    plane, components = Plane(queue), Components()
    async with plane.worker("bad") as bad, plane.worker("good") as good, plane.worker("other") as other:
        workers = (bad, good, other)

        async def broken(calls: Sequence[Call]) -> list[Outcome]:
            return [EngineFailed("broken") for _ in calls]

        told: dict[str, tuple[int, BreakerState]] = {}

        def hear() -> None:
            """As on the fleet topic: at once when the state changes, else every other second."""
            for worker in workers:
                at, last = told.get(worker.name.instance, (0, None))
                if last is None or last.state is not state(worker) or plane.now_ms - at >= 2_000:
                    told[worker.name.instance] = plane.now_ms, breaker(worker)
            owned = [worker.members["llm"].status(worker.name) for worker in workers]
            components.heard(told.values(), owned, plane.now_ms)

        async def offer(numbers: range) -> list[bool]:
            """Each goes where dispatch would put it; whether it succeeded."""
            tasks = [plane.task(number) for number in numbers]
            for turn, task in enumerate(tasks):
                hear()
                partitions = components.partitions("llm", "local", lane)
                plane.put(task, partition=partitions[turn % len(partitions)])
                await asyncio.sleep(0.01)
            await until(lambda: plane.lag(queue) == 0)
            done = {event.run_id for event in plane.events() if isinstance(event, StepCompleted)}
            return [task.run_id in done for task in tasks]

        await until(
            lambda: all(len(worker.members["llm"].status(worker.name).committed) == 3 for worker in workers[1:])
        )
        assert all(await offer(range(1, 31)))
        bad.engines["llm"].infer = broken  # type: ignore[method-assign]
        offering = asyncio.create_task(offer(range(100, 400)))
        await until(lambda: state(bad) is OPEN)
        await offering
        well = await offer(range(1_000, 1_200))
        assert sum(well) >= 180, "the others had them, but for the probes"
        assert [state(worker) for worker in (good, other)] == [CLOSED, CLOSED]


# ---- with the orchestrator and the join ----


def configuration(folder: Path, step: dict[str, Any], *backends: dict[str, Any]) -> Path:
    models = {"tool": {"backends": list(backends), "breaker": {"pause": "200ms"}}}
    pipeline = {
        "name": "ask", "deadline": "30s", "input": {"type": "object"}, "output": {"found": "${steps.look}"},
        "steps": [{"id": "look", "model_class": "tool", **step}],
    }  # fmt: skip
    (folder / "pipelines").mkdir()
    (folder / "models.yaml").write_text(yaml.safe_dump({"model_classes": models}))
    (folder / "pipelines" / "ask.yaml").write_text(yaml.safe_dump(pipeline))
    return folder


def simulated(name: str, **engine: Any) -> dict[str, Any]:
    return {"name": name, "engine": {"kind": "simulated", "latency_ms": 1, **engine}}


DOWN = {"outages": [{"after_s": 0.5, "for_s": 60, "kind": "fail"}]}


async def run_until(plane: InProcessPlane, true: Callable[[StepReport], bool]) -> None:
    """One run after the other, until its step went like that."""
    async with asyncio.timeout(10):
        while not true((await plane.run("ask", {})).steps["look"]):
            pass


def cut_off(step: StepReport) -> bool:
    return step.error is not None and "the circuit breaker of tool.main is open" in step.error.message


async def test_a_run_that_may_lose_the_component_is_partial_at_once(tmp_path: Path) -> None:
    folder = configuration(tmp_path, {"on_failure": "continue"}, simulated("main", **DOWN))
    async with in_process(folder) as plane:
        assert (await plane.run("ask", {})).status is RunStatus.SUCCEEDED
        await run_until(plane, cut_off)
        began = time.monotonic()
        response = await plane.run("ask", {})
        assert time.monotonic() - began < 0.5
        assert (response.status, response.missing) == (RunStatus.PARTIAL, ("look",))
        assert response.steps["look"].attempts == 1


async def test_a_fallback_is_taken_at_once(tmp_path: Path) -> None:
    step = {"backend": "main", "fallback": [{"value": "${{'instead': true}}"}], "on_failure": "fail"}
    folder = configuration(tmp_path, step, simulated("main", **DOWN))
    async with in_process(folder) as plane:
        await run_until(plane, lambda step: step.fallback == 1)
        response = await plane.run("ask", {})
        assert response.status is RunStatus.SUCCEEDED
        assert response.output == {"found": {"instead": True}}


async def test_the_next_backend_is_taken_when_none_is_named(tmp_path: Path) -> None:
    folder = configuration(tmp_path, {}, simulated("main", **DOWN), simulated("spare"))
    async with in_process(folder) as plane:
        await run_until(plane, lambda step: step.backend == "spare")
        assert {(await plane.run("ask", {})).status for _ in range(20)} == {RunStatus.SUCCEEDED}
