"""The host does what the domain decided, and sees what becomes of its processes."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from schemas.fleet import HostStatus, ServiceStatus
from schemas.models import ModelsFile, Queue, queues
from services.chassis.metrics import Metrics
from services.host import handlers
from services.host.domain.replicas import KILL_AFTER_S, SILENT_S, Replica
from services.host.handlers import Workers


class FakeProcess:
    """A worker whose fate the test decides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: bool | None = False
        self.stopped = False
        self.obedient = True
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    @property
    def wait_result(self) -> int:
        """The code it ended with."""
        return self._ended.result()

    def stop(self) -> None:
        self.stopped = True
        if self.obedient:
            self.end(0)

    def kill(self) -> None:
        self.end(-9)

    async def is_ready(self) -> bool | None:
        return self.ready

    async def exposition(self) -> str | None:
        return None if self.ready is None else f"# HELP up u\n# TYPE up gauge\nup {int(self.ready)}\n"


class FakeMachine:
    """Remembers everything it was asked to start."""

    def __init__(self) -> None:
        self.started: list[FakeProcess] = []
        self.running_at_start: list[int] = []
        self.broken = False
        self.ready_at_once = True

    async def start(self, replica: Replica, queue: Queue) -> FakeProcess:
        if self.broken:
            raise OSError(12, "Cannot allocate memory")
        process = FakeProcess(replica.name)
        process.ready = self.ready_at_once
        self.running_at_start.append(len(self.running))
        self.started.append(process)
        return process

    @property
    def running(self) -> list[FakeProcess]:
        return [process for process in self.started if not process._ended.done()]

    def names(self) -> list[str]:
        return sorted(process.name for process in self.running)


class Monotonic:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("TICK_S", "STARTING_PROBE_S", "READY_PROBE_S"):
        monkeypatch.setattr(handlers, pause, 0.001)


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


@pytest.fixture
def monotonic() -> Monotonic:
    return Monotonic()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def workers(machine: FakeMachine, monotonic: Monotonic, metrics: Metrics) -> AsyncIterator[Workers]:
    workers = Workers(machine, metrics, monotonic=monotonic)
    running = asyncio.create_task(workers.run())
    yield workers
    running.cancel()
    for process in machine.started:
        process.end(0)
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.sleep(0.005)  # the watches of what has ended


def configured(replicas: dict[str, int], slots: int = 4) -> list[Queue]:
    backends = [{"name": "local", "engine": {"kind": "simulated"}}]
    classes = {
        name: {"backends": backends, "slots": slots, "scaling": {"min_replicas": count}}
        for name, count in replicas.items()
    }
    return list(queues(ModelsFile.model_validate({"model_classes": classes}).model_classes))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  the subject has no event to wait for
            await asyncio.sleep(0.001)


def is_ready(workers: Workers) -> Callable[[], bool]:
    return lambda: workers.why_not_ready() is None


async def test_it_starts_what_is_configured_and_is_ready_when_all_of_it_is(
    workers: Workers, machine: FakeMachine
) -> None:
    assert workers.why_not_ready() == "no configuration yet"
    machine.ready_at_once = False
    workers.want(configured({"llm": 2, "embedding": 1}))
    assert workers.why_not_ready() == "waiting for llm-0, llm-1, embedding-0"
    await until(lambda: machine.names() == ["embedding-0", "llm-0", "llm-1"])
    for process in machine.started[:2]:
        process.ready = True
    await until(lambda: workers.why_not_ready() == "waiting for embedding-0")
    machine.started[2].ready = True
    await until(is_ready(workers))


async def test_a_configuration_without_workers_is_ready(workers: Workers) -> None:
    workers.want([])
    assert workers.why_not_ready() is None


async def test_a_worker_that_dies_is_started_again_after_its_wait_and_counted(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic, metrics: Metrics
) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    assert b'headway_worker_restarts_total{backend="local",model_class="llm"} 0.0' in metrics.exposition()
    machine.started[0].end(-11)
    await until(lambda: workers.why_not_ready() == "waiting for llm-0")
    assert machine.running == []
    monotonic.now_s += 0.5
    await until(is_ready(workers))
    assert len(machine.started) == 2
    assert b'headway_worker_restarts_total{backend="local",model_class="llm"} 1.0' in metrics.exposition()


async def test_a_machine_that_cannot_start_a_worker_tries_again(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    machine.broken = True
    workers.want(configured({"llm": 1}))
    await until(lambda: workers.statuses("h", 1)[1] == HostStatus(instance="h", workers={}, desired={"llm": 1}))
    machine.broken = False
    monotonic.now_s += 1
    await until(is_ready(workers))


async def test_what_is_no_longer_configured_is_stopped(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 2, "embedding": 1}))
    await until(is_ready(workers))
    workers.want(configured({"llm": 1}))
    await until(lambda: machine.names() == ["llm-0"])
    assert all(process.stopped for process in machine.started if process.name != "llm-0")


async def test_a_changed_class_is_replaced_one_worker_at_a_time(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 3}))
    await until(is_ready(workers))
    workers.want(configured({"llm": 3}, slots=9))
    await until(lambda: len(machine.started) == 6 and workers.why_not_ready() is None)
    assert machine.running_at_start == [0, 1, 2, 2, 2, 2]
    assert machine.running == machine.started[3:]


async def test_a_worker_that_does_not_drain_is_killed(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    machine.started[0].obedient = False
    workers.want([])
    await until(lambda: machine.started[0].stopped)
    assert machine.names() == ["llm-0"]
    monotonic.now_s += KILL_AFTER_S
    await until(lambda: machine.running == [])


async def test_a_worker_that_no_longer_answers_is_killed_and_replaced(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    first = machine.started[0]
    first.ready = None

    def is_replaced() -> bool:
        # A probe may have been under way when it fell silent, and count as an answer: time goes on until it does not.
        monotonic.now_s += SILENT_S / 10
        return machine.running != [first] and machine.names() == ["llm-0"]

    await until(is_replaced)
    assert first.wait_result == -9


async def test_a_worker_that_answers_not_ready_is_left_alone(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    machine.started[0].ready = False
    await until(lambda: workers.why_not_ready() == "waiting for llm-0")
    for _ in range(5):
        monotonic.now_s += SILENT_S / 2
        heard = asyncio.get_running_loop().time() + 0.02
        await until(lambda heard=heard: asyncio.get_running_loop().time() > heard)  # type: ignore[misc]
    assert machine.names() == ["llm-0"]


async def test_draining_stops_all_together_and_kills_what_is_left(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 2}))
    await until(is_ready(workers))
    machine.started[1].obedient = False
    await workers.drain(grace_s=0.01)
    assert machine.running == []
    assert all(process.stopped for process in machine.started)


async def test_draining_nothing_is_done_at_once(workers: Workers) -> None:
    await workers.drain(grace_s=3_600)


async def test_it_tells_the_fleet_what_runs_here(workers: Workers) -> None:
    workers.want(configured({"llm": 2, "embedding": 1}))
    await until(is_ready(workers))
    assert workers.statuses("host-1", 7) == [
        ServiceStatus(instance="host-1", service="host", revision=7),
        HostStatus(instance="host-1", workers={"llm": 2, "embedding": 1}, desired={"llm": 2, "embedding": 1}),
    ]


async def test_it_collects_the_metrics_of_those_that_answer(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 2}))
    await until(is_ready(workers))
    machine.started[0].ready = None
    assert list(await workers.expositions()) == ["llm-1"]


async def test_an_allowed_class_that_is_not_configured_is_told(
    machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    Workers(machine, Metrics(), allowed=["lm", "embedding"]).want(configured({"llm": 1, "embedding": 1}))
    assert '"allowed_but_not_configured":["lm"]' in capsys.readouterr().err
