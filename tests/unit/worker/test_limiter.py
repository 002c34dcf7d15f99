"""The slots of a queue beside an engine that tells its load, does not, or does not answer."""

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

from schemas.base import Priority
from schemas.models import SimulatedEngine as Config
from services.worker import limiter as limiters
from services.worker.domain.engine import Engine, EngineUnavailable, Load
from services.worker.domain.slots import Slots
from services.worker.engines.simulated import SimulatedEngine
from services.worker.limiter import SELDOM_S, Limiter

CONFIG = Config(kind="simulated")


class Telling(SimulatedEngine):
    """It says what a test wants."""

    def __init__(self, tell: Callable[[], Load | None]) -> None:
        super().__init__(CONFIG)
        self.asked = 0
        self._tell = tell

    async def measure(self) -> Load | None:
        self.asked += 1
        return self._tell()


class Silent(Telling):
    """It does not answer."""

    async def measure(self) -> Load | None:
        await super().measure()
        await asyncio.Event().wait()
        raise AssertionError


def busy_slots(total: int, busy: int) -> Slots:
    slots = Slots(total)
    for _ in range(busy):
        slots.take(Priority.INTERACTIVE)
    return slots


def limiter(engine: Engine, slots: Slots, now_s: float = 0.0) -> Limiter:
    return Limiter("llm", engine, slots, lambda: now_s)


def refuse() -> Load:
    raise EngineUnavailable("gone")


async def test_slots_follow_what_the_engine_says() -> None:
    slots = busy_slots(8, 8)
    limit = limiter(Telling(lambda: Load(running=6, waiting=2)), slots)
    await limit.look()
    assert slots.total == 8
    await limit.look()
    assert slots.total == 6


async def test_a_refusal_tells_at_once() -> None:
    slots = busy_slots(8, 8)
    limiter(SimulatedEngine(CONFIG), slots).refused()
    assert slots.total == 4


async def test_an_idle_engine_is_not_asked() -> None:
    engine = Telling(lambda: Load(0, 0))
    await limiter(engine, Slots(8)).look()
    assert engine.asked == 0


async def test_what_does_not_tell_its_load_is_asked_seldom() -> None:
    now = count(0, 2)
    engine = Telling(lambda: None)
    limit = Limiter("llm", engine, busy_slots(8, 1), lambda: float(next(now)))
    for _ in range(40):
        await limit.look()
    assert engine.asked == pytest.approx(80 / SELDOM_S, abs=1)


@pytest.mark.parametrize(
    "engine",
    [SimulatedEngine(CONFIG), Telling(lambda: None), Telling(refuse), Silent(lambda: None)],
    ids=["not measured", "tells nobody", "gone", "does not answer"],
)
async def test_where_no_load_is_known_slots_are_found_by_refusals(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiters, "MEASURE_TIMEOUT_S", 0.01)
    slots = busy_slots(8, 4)
    limit = limiter(engine, slots)
    limit.refused()
    assert slots.total == 2
    slots.release(Priority.INTERACTIVE)
    slots.release(Priority.INTERACTIVE)
    await limit.look()
    assert slots.total == 3
