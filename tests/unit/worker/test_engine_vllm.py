"""The life of the engine `vllm`, on a model that does what a test wants. `make test-vllm` has the real one."""

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping

import pytest

from schemas import models
from schemas.base import Json, Priority
from services.worker.domain.engine import (
    Call,
    CallerFault,
    Engine,
    EngineEnded,
    EngineUnavailable,
    Load,
    Measured,
    Result,
)
from services.worker.engines import vllm_loading
from services.worker.engines.openai import Chat
from services.worker.engines.vllm import VllmEngine

CONFIG = models.VllmEngine(kind="vllm", model="/models/small", sleep_level=2)
CHAT: Mapping[str, Json] = {"messages": [{"role": "user", "content": "Hi"}]}


class FakeModel:
    """It answers with the rank it was called by."""

    def __init__(self, *, can_sleep: bool = True) -> None:
        self.can_sleep = can_sleep
        self.ended = self.closed = False
        self.load = Load(2, 1, 0.5)
        self.slept: list[str] = []

    async def answer(self, call: Call, chat: Chat, rank: int) -> Result:
        if self.ended:
            raise EngineEnded("vLLM has ended")
        return Result(rank)

    async def sleep(self, level: int) -> None:
        self.slept.append(f"sleep {level}")

    async def wake(self, level: int) -> None:
        self.slept.append(f"wake {level}")

    async def close(self) -> None:
        self.closed = True


class Case:
    """An engine whose models a test sees."""

    def __init__(self, make: Callable[[], FakeModel] = FakeModel) -> None:
        self.models: list[FakeModel] = []
        self.calls = 0
        self.make = make
        self.engine = VllmEngine(CONFIG, slots=4, load=self.load)

    async def load(self, config: models.VllmEngine, calls: int) -> FakeModel:
        assert config is CONFIG
        self.calls = calls
        self.models.append(self.make())
        return self.models[-1]

    async def ask(self, priority: Priority = Priority.STANDARD, value: Mapping[str, Json] = CHAT) -> object:
        (outcome,) = await self.engine.infer(
            [Call("a/b#1", "a", "b", 1, "acme", None, value, 5.0, priority=priority)]
        )
        return outcome


async def test_it_takes_one_call_more_than_its_worker_has_slots() -> None:
    case = Case()
    await case.engine.start()
    await case.engine.start()
    assert case.calls == 5, "a health check is answered while all are busy"
    assert len(case.models) == 1


async def test_the_lanes_of_calls_are_their_order_and_a_health_check_goes_before_all() -> None:
    case = Case()
    await case.engine.start()
    ranks = [await case.ask(lane) for lane in (Priority.INTERACTIVE, Priority.STANDARD, Priority.BATCH)]
    assert ranks == [Result(0), Result(1), Result(2)]
    asked: list[int] = []

    async def answer(call: Call, chat: Chat, rank: int) -> Result:
        asked.append(rank)
        return Result(None)

    case.models[0].answer = answer  # type: ignore[method-assign]
    await case.engine.health()
    assert asked == [-1]


async def test_an_input_is_that_of_openai() -> None:
    case = Case()
    await case.engine.start()
    fault = await case.ask(value={"messages": [{"role": "user", "content": 7}]})
    assert isinstance(fault, CallerFault)
    assert str(fault).startswith("input.messages.0.content")


async def test_asleep_it_keeps_its_model_and_refuses_calls() -> None:
    case = Case()
    await case.engine.start()
    for _ in range(2):
        await case.engine.sleep()
    assert isinstance(await case.ask(), EngineUnavailable)
    with pytest.raises(EngineUnavailable, match="asleep"):
        await case.engine.health()
    for _ in range(2):
        await case.engine.wake()
    assert isinstance(await case.ask(), Result)
    assert case.models[0].slept == ["sleep 2", "wake 2"]
    assert len(case.models) == 1


async def test_where_vllm_cannot_sleep_it_is_unloaded_and_loaded_again() -> None:
    case = Case(lambda: FakeModel(can_sleep=False))
    await case.engine.start()
    await case.engine.sleep()
    assert case.models[0].closed
    assert isinstance(await case.ask(), EngineUnavailable)
    await case.engine.wake()
    assert isinstance(await case.ask(), Result)
    assert [model.slept for model in case.models] == [[], []]


async def test_one_that_has_ended_is_ill_and_no_start_heals_it() -> None:
    case = Case()
    await case.engine.start()
    case.models[0].ended = True
    assert isinstance(await case.ask(), EngineEnded)
    with pytest.raises(EngineUnavailable, match="vLLM has ended"):
        await case.engine.health()
    with pytest.raises(EngineEnded, match="another process"):
        await case.engine.start()
    assert len(case.models) == 1


async def test_one_that_has_ended_and_is_put_to_sleep_is_unloaded() -> None:
    case = Case()
    await case.engine.start()
    case.models[0].ended = True
    await case.engine.sleep()
    assert case.models[0].closed
    assert case.models[0].slept == []


async def test_it_stops_its_model_once() -> None:
    case = Case()
    await case.engine.start()
    for _ in range(2):
        await case.engine.stop()
    assert case.models[0].closed
    assert isinstance(await case.ask(), EngineUnavailable)


async def test_its_load_is_its_models() -> None:
    case = Case()
    engine: Engine = case.engine
    assert isinstance(engine, Measured)
    with pytest.raises(EngineUnavailable):
        await engine.measure()
    await engine.start()
    assert await engine.measure() == Load(2, 1, 0.5)


async def test_a_missing_package_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    adopted: dict[str, str] = {}
    monkeypatch.setattr(vllm_loading, "adopt", adopted.update)
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.delitem(sys.modules, "services.worker.engines.vllm_model", raising=False)
    engine = VllmEngine(CONFIG, slots=4)
    with pytest.raises(EngineUnavailable, match=r"vllm is not installed: pip install 'headway\[vllm\]'"):
        await engine.start()
    await engine.stop()
    assert adopted["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert "VLLM_LOGGING_LEVEL" not in adopted, "what was given stands"


class FakeChild:
    """A process of vLLM's; without it the loading fails."""

    def __init__(self) -> None:
        self.killed = threading.Event()

    def kill(self) -> None:
        self.killed.set()


@pytest.mark.parametrize("begun", [True, False])
async def test_a_loading_that_is_cancelled_ends_with_its_processes(
    monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """Whether or not they were there when it was cancelled."""
    earlier, child, going = FakeChild(), FakeChild(), threading.Event()
    children = [earlier]
    looked: list[bool] = []

    def load(kind: object, config: models.VllmEngine, calls: int) -> None:
        if begun:
            children.append(child)
        going.set()
        assert child.killed.wait(5)
        raise RuntimeError("killed")

    def active_children() -> list[FakeChild]:
        looked.append(True)
        if len(looked) == 3:
            children.append(child)
        return children

    monkeypatch.setattr(vllm_loading, "_imported", lambda: FakeModel)
    monkeypatch.setattr(vllm_loading, "_load", load)
    monkeypatch.setattr(vllm_loading, "active_children", active_children)
    monkeypatch.setattr(vllm_loading, "LOOK_EVERY_S", 0.001)
    engine = VllmEngine(CONFIG, slots=4)
    starting = asyncio.create_task(engine.start())
    await asyncio.to_thread(going.wait, 5)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert child.killed.is_set()
    assert not earlier.killed.is_set()
    await engine.stop()


async def test_a_model_that_is_loaded_though_it_was_given_up_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, going, go = FakeModel(), threading.Event(), threading.Event()

    def load(kind: object, config: models.VllmEngine, calls: int) -> FakeModel:
        going.set()
        assert go.wait(5)
        return model

    monkeypatch.setattr(vllm_loading, "_imported", lambda: FakeModel)
    monkeypatch.setattr(vllm_loading, "_load", load)
    starting = asyncio.create_task(VllmEngine(CONFIG, slots=4).start())
    await asyncio.to_thread(going.wait, 5)
    starting.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert model.closed


@pytest.mark.parametrize(
    ("name", "instead"), [("max_model_len", "context"), ("max_num_seqs", "slots"), ("model", "model")]
)
def test_an_argument_is_not_told_twice(name: str, instead: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is told by `{instead}`"):
        models.VllmEngine(kind="vllm", model="m", options={name: 1})
