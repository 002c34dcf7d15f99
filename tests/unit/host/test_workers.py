"""The host does what the domain decided, and sees what becomes of its processes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from schemas.fleet import Capacity, HostStatus, Kept
from schemas.models import ModelsFile, Queue, queues
from services.chassis.metrics import Metrics
from services.host import handlers
from services.host.domain.orders import Order
from services.host.domain.replicas import KILL_AFTER_S, LAST_BACKOFF_S, SILENT_S, STUCK_S, Answer, Replica
from services.host.handlers import FAILED_FOR_S, Workers


class FakeProcess:
    """A worker whose fate the test decides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: bool | None = False
        self.told: list[str] = []
        self.busy = False
        """Its tasks keep it from sleeping."""
        self.asleep = False
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

    @property
    def stopped(self) -> bool:
        return "stop" in self.told

    def sleep(self) -> None:
        self.told.append("sleep")
        self.asleep = True

    def wake(self) -> None:
        self.told.append("wake")
        self.asleep = False

    def stop(self) -> None:
        self.told.append("stop")
        if self.obedient:
            self.end(0)

    def kill(self) -> None:
        self.end(-9)

    async def answer(self) -> Answer | None:
        if self.ready is None or not self.ready:
            return None if self.ready is None else "neither"
        return "ready" if not self.asleep else "neither" if self.busy else "asleep"

    async def exposition(self) -> str | None:
        return None if self.ready is None else f"# HELP up u\n# TYPE up gauge\nup {int(self.ready)}\n"


class FakeMachine:
    """Remembers everything it was asked to start."""

    def __init__(self) -> None:
        self.started: list[FakeProcess] = []
        self.running_at_start: list[int] = []
        self.broken = False
        self.ready_at_once = True
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens while a worker is started."""

    async def start(self, replica: Replica, queue: Queue, *, asleep: bool) -> FakeProcess:
        self.meanwhile()
        if self.broken:
            raise OSError(12, "Cannot allocate memory")
        process = FakeProcess(replica.name)
        process.ready, process.asleep = self.ready_at_once, asleep
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
    for pause in ("TICK_S", "BOOTING_PROBE_S", "STARTING_PROBE_S", "READY_PROBE_S"):
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
    async with working(Workers(machine, metrics, monotonic=monotonic), machine) as workers:
        yield workers


@asynccontextmanager
async def working(workers: Workers, machine: FakeMachine) -> AsyncIterator[Workers]:
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


def order(**warm: int) -> Order:
    return Order(7, 1_000, {label: Kept(warm=count) for label, count in warm.items()})


def resting(*, warm: int = 0, asleep: int = 0) -> Order:
    return Order(7, 1_000, {"llm": Kept(warm=warm, asleep=asleep)})


def status(workers: Workers) -> HostStatus:
    return workers.status(HostStatus(instance="host-1", workers={}))


async def several_looks() -> None:
    """Time for it to do what it should not."""
    enough = asyncio.get_running_loop().time() + 0.02
    await until(lambda: asyncio.get_running_loop().time() > enough)


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
    await until(lambda: status(workers) == HostStatus(instance="host-1", workers={}, desired={"llm": 1}))
    machine.broken = False
    monotonic.now_s += 1
    await until(is_ready(workers))


async def test_what_is_no_longer_configured_is_stopped(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 2, "embedding": 1}))
    await until(is_ready(workers))
    workers.want(configured({"llm": 1}))
    await until(lambda: machine.names() == ["llm-0"])
    assert all(process.stopped for process in machine.started if process.name != "llm-0")


async def test_a_changed_class_is_replaced_one_worker_at_a_time_each_by_one_that_is_ready(
    workers: Workers, machine: FakeMachine
) -> None:
    workers.want(configured({"llm": 3}))
    await until(is_ready(workers))
    workers.want(configured({"llm": 3}, slots=9))
    await until(lambda: machine.running == machine.started[3:] and workers.why_not_ready() is None)
    assert machine.names() == ["llm-0", "llm-1", "llm-2"]
    assert machine.running_at_start[:4] == [0, 1, 2, 3]
    assert all(process.told == ["sleep", "stop"] for process in machine.started[:3])


async def test_an_outdated_worker_is_let_end_its_tasks_beside_its_heir(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    outdated = machine.started[0]
    machine.ready_at_once, outdated.busy = False, True
    workers.want(configured({"llm": 1}, slots=9))
    await until(lambda: len(machine.started) == 2)
    await several_looks()
    assert outdated.told == [], "nobody would have been at work"
    machine.started[1].ready = True
    await until(lambda: outdated.told == ["sleep"] and is_ready(workers)())
    monotonic.now_s += KILL_AFTER_S
    await several_looks()
    assert machine.running == machine.started, "it was not let end its tasks"
    assert status(workers).workers == {"llm": 2}
    outdated.busy = False
    await until(lambda: machine.running == machine.started[1:])
    assert workers.restarts == 0


async def test_a_configuration_whose_workers_fail_takes_none_of_the_old_ones_away(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    machine.ready_at_once = False
    workers.want(configured({"llm": 1}, slots=9))
    for attempt in range(1, 4):
        await until(lambda attempt=attempt: len(machine.started) == 1 + attempt)  # type: ignore[misc]
        machine.started[-1].end(1)
        await until(lambda: status(workers).workers == {"llm": 1})
        monotonic.now_s += LAST_BACKOFF_S
    assert status(workers).failing == ("llm",)
    assert status(workers).ready == {"llm": 1}
    assert workers.why_not_ready() == "waiting for llm-0"
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    assert machine.started[0].told == []


async def test_where_memory_holds_no_second_worker_the_outdated_one_goes_first(
    machine: FakeMachine, monotonic: Monotonic
) -> None:
    small = Capacity(memory=300 << 20)
    async with working(Workers(machine, Metrics(), monotonic=monotonic, capacity=small), machine) as workers:
        workers.want(configured({"llm": 1}))
        await until(is_ready(workers))
        machine.started[0].busy = True
        workers.want(configured({"llm": 1}, slots=9))
        await until(lambda: machine.started[0].told == ["sleep"])
        await several_looks()
        assert len(machine.started) == 1
        machine.started[0].busy = False
        await until(lambda: len(machine.started) == 2 and is_ready(workers)())
        assert machine.running_at_start == [0, 0]


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
        await several_looks()
    assert machine.names() == ["llm-0"]


async def test_draining_stops_all_together_and_kills_what_is_left(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 2}))
    await until(is_ready(workers))
    machine.started[1].obedient = False
    await workers.drain(grace_s=0.01)
    assert machine.running == []
    assert all(process.stopped for process in machine.started)


async def test_nothing_is_started_any_more_once_it_drains(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    await workers.drain(grace_s=0.01)
    workers.obey(order(llm=3))
    workers.want(configured({"llm": 2}))
    await several_looks()
    assert len(machine.started) == 1


async def test_draining_nothing_is_done_at_once(workers: Workers) -> None:
    await workers.drain(grace_s=3_600)


async def test_it_tells_the_fleet_what_runs_here(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 2, "embedding": 1}))
    await until(is_ready(workers))
    machine.started[1].ready = False
    await until(lambda: not is_ready(workers)())
    host = HostStatus(instance="host-1", workers={}, capacity=Capacity(cpu=2), labels=("gpu",))
    assert workers.status(host) == HostStatus(
        instance="host-1",
        capacity=Capacity(cpu=2),
        labels=("gpu",),
        workers={"llm": 2, "embedding": 1},
        ready={"llm": 1, "embedding": 1},
        desired={"llm": 2, "embedding": 1},
    )


async def test_it_obeys_an_order_instead_of_the_configuration(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 2, "embedding": 1}))
    await until(is_ready(workers))
    workers.obey(order(llm=3))
    await until(lambda: machine.names() == ["llm-0", "llm-1", "llm-2"] and status(workers).ready == {"llm": 3})
    workers.obey(order(llm=1))
    await until(lambda: machine.names() == ["llm-0"])
    assert len(machine.started) == 4, "what was to stay was restarted"


async def test_what_another_order_takes_back_while_others_are_started_is_not_started(
    workers: Workers, machine: FakeMachine
) -> None:
    machine.meanwhile = lambda: workers.obey(order(llm=1))
    workers.obey(order(llm=3))
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    await several_looks()
    assert [process.name for process in machine.started] == ["llm-0"]
    machine.meanwhile = lambda: None
    workers.obey(order(llm=2))
    await until(lambda: machine.names() == ["llm-0", "llm-1"])


async def test_an_order_outlives_whoever_gave_it_and_the_configuration(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    workers.want(configured({"llm": 2}))
    workers.obey(order(llm=1))
    await until(lambda: machine.names() == ["llm-0"] and is_ready(workers)())
    monotonic.now_s += SILENT_S / 2
    workers.want(configured({"llm": 4, "embedding": 1}))
    await until(is_ready(workers))
    assert machine.names() == ["llm-0"]


async def test_with_patience_it_waits_for_an_order_before_it_goes_by_the_configuration(
    machine: FakeMachine, monotonic: Monotonic
) -> None:
    async with working(Workers(machine, Metrics(), patience_s=10.0, monotonic=monotonic), machine) as patient:
        patient.want(configured({"llm": 1}))
        assert patient.why_not_ready() == "no placement yet"
        assert status(patient).desired is None
        monotonic.now_s += 9.9
        await several_looks()
        assert machine.started == []
        monotonic.now_s += 0.1
        await until(lambda: machine.names() == ["llm-0"])


async def test_an_order_ends_its_patience(machine: FakeMachine, monotonic: Monotonic) -> None:
    async with working(Workers(machine, Metrics(), patience_s=10.0, monotonic=monotonic), machine) as patient:
        patient.obey(order(llm=2))
        patient.want(configured({"llm": 1}))
        await until(lambda: machine.names() == ["llm-0", "llm-1"])


async def test_it_puts_workers_to_sleep_and_wakes_them(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 1}))
    workers.obey(resting(warm=1, asleep=1))
    await until(lambda: len(machine.started) == 2 and status(workers).ready == {"llm": 1})
    first, second = machine.started
    assert (first.asleep, second.asleep) == (False, True)
    assert status(workers).workers == {"llm": 2}
    await several_looks()
    workers.obey(resting(warm=2))
    await until(lambda: status(workers).ready == {"llm": 2})
    assert second.told == ["wake"]
    workers.obey(resting(asleep=2))
    await until(lambda: status(workers).ready == {} and "sleep" in second.told)
    assert (first.told, second.told) == (["sleep"], ["wake", "sleep"])
    assert len(machine.started) == 2


async def test_a_worker_that_is_added_by_an_order_is_waited_for_only_if_it_fails(
    workers: Workers, machine: FakeMachine
) -> None:
    workers.want(configured({"llm": 1}))
    machine.ready_at_once = False
    workers.obey(order(llm=1))
    await until(lambda: machine.names() == ["llm-0"])
    await several_looks()
    assert workers.why_not_ready() == "waiting for llm-0", "so far nothing was ready here"
    machine.started[0].ready = True
    await until(is_ready(workers))
    await several_looks()
    workers.obey(order(llm=2))
    await until(lambda: machine.names() == ["llm-0", "llm-1"])
    await several_looks()
    assert workers.why_not_ready() is None
    machine.started[1].end(1)
    await until(lambda: workers.why_not_ready() == "waiting for llm-1")


async def test_a_worker_that_has_tasks_is_let_end_them_before_it_goes(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    workers.want(configured({"llm": 2}))
    await until(is_ready(workers))
    second = machine.started[1]
    second.busy = True
    workers.obey(order(llm=1))
    await until(lambda: second.told == ["sleep"])
    monotonic.now_s += KILL_AFTER_S
    await several_looks()
    assert machine.running == machine.started, "it was not let end its tasks"
    assert status(workers).workers == {"llm": 2}
    second.busy = False
    await until(lambda: machine.running == machine.started[:1])
    assert second.told == ["sleep", "stop"]


async def test_a_worker_that_drains_works_on_when_it_is_wanted_again(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    machine.started[0].busy = True
    workers.obey(order())
    await until(lambda: machine.started[0].told == ["sleep"])
    workers.obey(order(llm=1))
    await until(lambda: machine.started[0].told == ["sleep", "wake"] and status(workers).ready == {"llm": 1})
    assert len(machine.started) == 1


async def test_a_sleeper_that_dies_is_started_again_asleep(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    workers.want(configured({"llm": 1}))
    workers.obey(resting(asleep=1))
    await until(is_ready(workers))
    machine.started[0].end(-9)
    await until(lambda: not is_ready(workers)())
    monotonic.now_s += 0.5
    await until(is_ready(workers))
    assert [process.asleep for process in machine.started] == [True, True]


async def test_a_host_that_is_given_back_has_left_when_it_is_told_to_keep_nothing(
    workers: Workers, machine: FakeMachine
) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    assert not status(workers).leaving
    workers.leave()
    assert status(workers).leaving
    await several_looks()
    assert not workers.left.is_set()
    workers.obey(order())
    await asyncio.wait_for(workers.left.wait(), 5)
    assert machine.running == []


async def test_an_order_for_a_queue_that_is_not_here_is_told_once(
    workers: Workers, machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    workers.want(configured({"llm": 1}))
    for _ in range(3):
        workers.obey(order(lm=1, llm=1))
    await until(is_ready(workers))
    assert machine.names() == ["llm-0"]
    assert capsys.readouterr().err.count('"no_such_queues_here":["lm"]') == 1


async def test_a_queue_whose_workers_never_become_ready_is_reported(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    machine.ready_at_once = False
    workers.want(configured({"llm": 1}))
    for attempt in range(1, 4):
        await until(lambda attempt=attempt: len(machine.started) == attempt)  # type: ignore[misc]
        assert status(workers).failing == ()
        machine.started[-1].end(1)
        await until(lambda: machine.running == [])
        await until(lambda: status(workers).workers == {})
        monotonic.now_s += LAST_BACKOFF_S
    assert status(workers).failing == ("llm",)


async def test_where_a_queue_failed_it_is_told_for_a_while_after_its_workers_were_taken_away(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    machine.ready_at_once = False
    workers.want(configured({"llm": 1}))
    workers.obey(order(llm=1))
    for _ in range(round(STUCK_S / SILENT_S) + 1):
        await several_looks()
        monotonic.now_s += SILENT_S - 1
    await until(lambda: status(workers).failing == ("llm",))
    workers.obey(order())
    await until(lambda: status(workers).workers == {})
    assert status(workers).failing == ("llm",), "else it would come back before another host could have it ready"
    monotonic.now_s += FAILED_FOR_S
    assert status(workers).failing == ()


async def test_a_queue_of_which_some_workers_fail_is_told_though_another_works(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    workers.want(configured({"llm": 2}))
    await until(is_ready(workers))
    for attempt in range(1, 4):
        await until(lambda attempt=attempt: len(machine.started) == 1 + attempt)  # type: ignore[misc]
        machine.started[-1 if attempt > 1 else 0].end(1)
        await until(lambda: status(workers).workers == {"llm": 1})
        monotonic.now_s += LAST_BACKOFF_S + 5
    await until(lambda: status(workers).failing == ("llm",))
    await several_looks()
    assert status(workers).failing == ("llm",)


async def test_a_queue_that_works_again_is_told_so(
    workers: Workers, machine: FakeMachine, monotonic: Monotonic
) -> None:
    machine.ready_at_once = False
    workers.want(configured({"llm": 1}))
    for _ in range(round(STUCK_S / SILENT_S) + 1):
        await several_looks()
        monotonic.now_s += SILENT_S - 1
    await until(lambda: status(workers).failing == ("llm",))
    machine.started[0].ready = True
    await until(lambda: status(workers).failing == ())


async def test_it_collects_the_metrics_of_those_that_answer(workers: Workers, machine: FakeMachine) -> None:
    workers.want(configured({"llm": 2}))
    await until(is_ready(workers))
    machine.started[0].ready = None
    assert list(await workers.expositions()) == ["llm-1"]


async def test_the_metrics_of_an_outdated_worker_are_told_apart_from_those_of_its_heir(
    workers: Workers, machine: FakeMachine
) -> None:
    workers.want(configured({"llm": 1}))
    await until(is_ready(workers))
    machine.ready_at_once = False
    workers.want(configured({"llm": 1}, slots=9))
    await until(lambda: len(machine.started) == 2)
    outdated, heir = await workers.expositions()
    assert heir == "llm-0"
    assert outdated.startswith("llm-0-")


async def test_an_allowed_class_that_is_not_configured_is_told(
    machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    Workers(machine, Metrics(), ["lm", "embedding"]).want(configured({"llm": 1, "embedding": 1}))
    assert '"allowed_but_not_configured":["lm"]' in capsys.readouterr().err
