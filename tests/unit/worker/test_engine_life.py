import asyncio
import contextlib
from collections.abc import Callable, Sequence

import pytest

from schemas.fleet import CircuitState
from schemas.models import BreakerRules
from services.chassis.clock import LogClock
from services.worker import engine_life as module
from services.worker import patience
from services.worker.circuit import Circuit
from services.worker.domain.engine import (
    FIRST_HEALTH_TIMEOUT_S,
    HEALTH_TIMEOUT_S,
    Call,
    EngineEnded,
    EngineUnavailable,
    Origin,
    Outcome,
)
from services.worker.engine_life import EngineLife, EngineLostError


class FakeEngine:
    """An engine whose health a test decides."""

    max_batch = 1

    def __init__(self) -> None:
        self.starts = self.checks = self.sleeps = self.wakes = 0
        self.ill = self.hangs = self.stubborn = self.ended = False
        self.over = asyncio.Event()
        self.heals = True
        self.allowed_s: list[float] = []

    async def start(self) -> None:
        self.starts += 1
        if self.ended:
            raise EngineEnded("gone")
        if self.ill and self.heals:
            self.ill = False

    async def health(self, timeout_s: float = 5.0) -> None:
        self.checks += 1
        self.allowed_s.append(timeout_s)
        if self.hangs:
            await asyncio.sleep(3_600)
        while self.stubborn and not self.over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.over.wait()
        if self.ill:
            raise EngineUnavailable("ill")

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        raise AssertionError("the life of an engine asks it nothing but its health")

    async def sleep(self) -> None:
        self.sleeps += 1

    async def wake(self) -> None:
        self.wakes += 1

    async def stop(self) -> None: ...


class Case:
    """One engine's life, on a clock that the test holds."""

    def __init__(self) -> None:
        self.now = 100.0
        self.engine = FakeEngine()
        self.starts: list[tuple[float, Origin]] = []
        clock = LogClock(lambda: self.now)
        clock.observe(5_000)
        self.circuit = Circuit(BreakerRules(pause=10), lambda: self.now)
        self.life = EngineLife(
            "llm", self.engine, clock, self.circuit,
            on_started=lambda *start: self.starts.append(start), monotonic=lambda: self.now, age_s=2.5,
        )  # fmt: skip
        self.watch = asyncio.create_task(self.life.watch())

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def rounds(self, count: int = 5) -> None:
        """So many health intervals pass."""
        await asyncio.sleep(count * module.HEALTH_EVERY_S)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEALTH_EVERY_S", 0.01)
    monkeypatch.setattr(module, "PROGRESS_EVERY_S", 0.001)
    monkeypatch.setattr(module, "HEAL_EVERY_S", 0.001)
    monkeypatch.setattr(module, "PATIENCE_S", 0.02)


async def test_an_engine_is_available_once_it_has_answered() -> None:
    case = Case()
    assert (case.life.state, case.life.available, case.life.ready_at) == ("starting", False, None)
    await case.life.start()
    assert (case.life.state, case.life.available, case.life.ready_at) == ("warm", True, 5_000)
    assert case.starts == [(2.5, "zero")], "the first start is the process's, too"
    assert case.life.start_ms == 2_500


async def test_an_engine_that_does_not_start_says_why() -> None:
    case = Case()
    case.engine.ill, case.engine.heals = True, False
    with pytest.raises(EngineUnavailable, match="ill"):
        await case.life.start()
    assert not case.life.available


async def test_the_first_answer_after_a_start_may_take_longer_than_later_ones() -> None:
    case = Case()
    await case.life.start()
    case.life.suspect(None)
    await case.until(lambda: case.life.available)
    assert case.engine.allowed_s == [FIRST_HEALTH_TIMEOUT_S, HEALTH_TIMEOUT_S]


def test_a_wedged_engine_is_given_up_within_30_s() -> None:
    slack_s = 1 + patience.OBEY_S
    to_check_twice_s = HEALTH_TIMEOUT_S + slack_s + module.HEAL_TIMEOUT_S + slack_s
    assert module.HEALTH_EVERY_S + to_check_twice_s <= 30


async def test_an_engine_that_does_not_keep_to_its_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEALTH_TIMEOUT_S", -0.99)
    monkeypatch.setattr(module, "HEAL_TIMEOUT_S", -0.99)
    case = Case()
    await case.life.start()
    case.engine.hangs = True
    case.now += 1.0
    with pytest.raises(EngineLostError, match="llm is lost"):
        await case.watch


async def test_an_engine_that_does_not_even_stop_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEALTH_TIMEOUT_S", "HEAL_TIMEOUT_S"):
        monkeypatch.setattr(module, name, -0.99)
    monkeypatch.setattr(patience, "OBEY_S", 0.01)
    case = Case()
    await case.life.start()
    case.engine.stubborn = True
    case.now += 1.0
    with pytest.raises(EngineLostError, match="llm is lost"):
        await case.watch
    case.engine.over.set()


async def test_an_engine_said_to_be_lost_is_given_up_unchecked() -> None:
    case = Case()
    await case.life.start()
    case.life.lose("4 calls do not stop")
    with pytest.raises(EngineLostError, match="llm is lost: 4 calls do not stop"):
        await case.watch
    assert case.engine.checks == 1


async def test_an_engine_that_is_lost_while_it_is_checked_is_given_up_though_it_passes() -> None:
    case = Case()
    await case.life.start()
    checked, done = asyncio.Event(), asyncio.Event()

    async def health(timeout_s: float = 5.0) -> None:
        checked.set()
        await done.wait()

    case.engine.health = health  # type: ignore[method-assign]
    case.life.suspect(None)
    await asyncio.wait_for(checked.wait(), 1)
    case.life.lose("4 calls do not stop")
    done.set()
    with pytest.raises(EngineLostError, match="llm is lost: 4 calls do not stop"):
        await asyncio.wait_for(case.watch, 1)


async def test_an_idle_engine_is_checked() -> None:
    case = Case()
    await case.life.start()
    case.now += 1.0
    await case.until(lambda: case.engine.checks > 1)


async def test_one_that_just_answered_is_not() -> None:
    case = Case()
    await case.life.start()
    for _ in range(5):
        case.now += 1.0
        case.life.answered()
        await case.rounds(1)
    assert case.engine.checks == 1


async def test_a_suspect_gets_no_work_until_it_is_checked() -> None:
    case = Case()
    await case.life.start()
    case.life.suspect(None)
    assert not case.life.available
    await case.until(lambda: case.life.available)
    assert case.engine.checks == 2


async def test_a_suspect_is_left_in_peace_for_as_long_as_it_asks() -> None:
    case = Case()
    await case.life.start()
    case.life.suspect(0.1)
    await case.rounds(5)
    assert case.engine.checks == 1
    await case.until(lambda: case.life.available)


async def test_an_ill_engine_is_started_anew() -> None:
    case = Case()
    await case.life.start()
    case.engine.ill = True
    case.life.suspect(None)
    await case.until(lambda: case.life.available)
    assert case.engine.starts == 2
    assert len(case.starts) == 2


async def test_one_that_says_no_at_once_is_healed_again_and_again_and_then_ends_its_worker() -> None:
    case = Case()
    await case.life.start()
    case.engine.ill, case.engine.heals = True, False
    case.life.suspect(None)
    await case.until(lambda: case.engine.starts > 3)
    assert not case.watch.done()
    case.now += module.GIVE_UP_S
    with pytest.raises(EngineLostError, match="llm is lost: ill"):
        await case.watch
    assert case.life.state == "failed"


async def test_one_that_has_ended_ends_its_worker_at_once() -> None:
    case = Case()
    await case.life.start()
    case.engine.ill, case.engine.ended = True, True
    case.life.suspect(None)
    with pytest.raises(EngineLostError, match="llm is lost: gone"):
        await case.watch
    assert case.engine.starts == 2


async def test_one_that_says_nothing_is_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAL_TIMEOUT_S", 0.0)  # as long as it takes on this clock
    case = Case()
    await case.life.start()
    case.engine.ill, case.engine.heals = True, False
    case.life.suspect(None)
    with pytest.raises(EngineLostError, match="llm is lost: ill"):
        await case.watch
    assert case.engine.starts == 2


async def test_the_breaker_opens_while_an_engine_does_not_heal_and_lets_probes_pass_when_it_has() -> None:
    case = Case()
    await case.life.start()
    case.engine.ill, case.engine.heals = True, False
    case.life.suspect(None)
    await case.until(lambda: case.circuit.is_open)
    assert case.life.available, "tasks are taken, to be refused"
    assert case.life.refuses
    case.engine.heals = True
    await case.until(lambda: case.circuit.state is CircuitState.HALF_OPEN)
    assert (case.life.state, case.life.available, case.life.refuses) == ("warm", True, False)


async def test_an_engine_too_busy_for_a_check_is_well_if_it_answers_a_call_meanwhile() -> None:
    case = Case()
    await case.life.start()
    case.engine.ill, case.engine.heals = True, False
    health = case.engine.health

    async def busy(timeout_s: float = 5.0) -> None:
        case.now += timeout_s
        case.life.answered()
        await health(timeout_s)

    case.engine.health = busy  # type: ignore[method-assign]
    case.life.suspect(None)
    await case.until(lambda: case.life.available)
    assert (case.engine.starts, case.engine.checks) == (1, 2)


async def test_an_engine_whose_breaker_opened_is_left_in_peace_and_then_checked() -> None:
    case = Case()
    await case.life.start()
    case.circuit.trip()
    assert case.engine.checks == 1
    await case.until(lambda: case.circuit.state is CircuitState.HALF_OPEN)
    assert case.engine.checks == 2
    assert case.engine.starts == 1


async def test_an_engine_that_heals_soon_opens_nothing() -> None:
    case = Case()
    await case.life.start()
    told: list[CircuitState] = []
    case.circuit.listen(told.append)
    case.engine.ill = True
    case.life.suspect(None)
    await case.until(lambda: case.life.available)
    await asyncio.sleep(2 * module.PATIENCE_S)
    assert told == []


async def test_an_engine_that_sleeps_is_left_alone_however_long() -> None:
    case = Case()
    await case.life.start()
    await case.life.sleep()
    assert (case.life.state, case.life.available) == ("asleep", False)
    checks = case.engine.checks
    case.engine.ill = True
    case.now += 3_600
    await case.rounds()
    assert case.engine.checks == checks
    assert not case.watch.done()


async def test_an_engine_that_wakes_is_proven_as_after_a_start() -> None:
    case = Case()
    await case.life.start()
    await case.life.sleep()
    case.now += 60
    await case.life.wake()
    await case.life.wake()
    assert (case.life.state, case.life.available, case.life.ready_at) == ("warm", True, 65_000)
    assert (case.engine.starts, case.engine.sleeps, case.engine.wakes) == (1, 1, 1)
    assert case.engine.allowed_s == [FIRST_HEALTH_TIMEOUT_S] * 2
    assert case.starts == [(2.5, "zero"), (0.0, "asleep")]
    assert case.life.start_ms == 2_500, "a start is what a new worker would take"


async def test_an_engine_that_does_not_wake_says_why() -> None:
    case = Case()
    await case.life.start()
    await case.life.sleep()
    case.engine.ill = True
    with pytest.raises(EngineUnavailable, match="ill"):
        await case.life.wake()
    assert not case.life.available


async def test_an_engine_falls_asleep_after_the_check_that_is_under_way() -> None:
    case = Case()
    await case.life.start()
    case.engine.stubborn = True
    case.life.suspect(None)
    await case.until(lambda: case.engine.checks == 2)
    asleep = asyncio.create_task(case.life.sleep())
    await asyncio.sleep(0)
    assert case.engine.sleeps == 0
    case.engine.over.set()
    await asyncio.wait_for(asleep, 5)
    assert case.life.state == "asleep"
