"""Functions of a configuration folder, as authors write them, rightly and wrongly."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from schemas.base import Json
from schemas.errors import ErrorCode
from services.worker.domain.engine import (
    Call,
    CallerFault,
    DeadlineExceeded,
    EngineError,
    EngineFailed,
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.engines.function import FunctionEngine

PRELUDE = """
import asyncio, threading, time
from pathlib import Path
from pydantic import BaseModel
from headway.functions import StepContext, StepError
from schemas.errors import ErrorCode

class In(BaseModel):
    text: str = ""

class Out(BaseModel):
    text: str
    number: float = 0
"""
_numbers = count(1)

Build = Callable[..., FunctionEngine]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """An engine over a module with the given source; no test sees another's module."""
    engines: list[FunctionEngine] = []
    name = f"functions_{next(_numbers)}"
    (tmp_path / "functions").mkdir()
    known = set(sys.modules)

    def build(source: str, functions: str | Mapping[str, str] = "f", health_input: Json = None) -> FunctionEngine:
        (tmp_path / "functions" / f"{name}.py").write_text(PRELUDE + source, "utf-8")
        paths = (
            f"{name}:{functions}"
            if isinstance(functions, str)
            else {key: f"{name}:{function}" for key, function in functions.items()}
        )
        engine = FunctionEngine(
            paths, slots=1, home=tmp_path, folder=tmp_path / "functions", health_input=health_input
        )
        engines.append(engine)
        return engine

    yield build
    for engine in engines:
        engine._threads.shutdown()
    sys.path.remove(str(tmp_path / "functions")) if str(tmp_path / "functions") in sys.path else None
    for added in set(sys.modules) - known:
        if added.startswith("functions_"):
            del sys.modules[added]


async def ask(engine: FunctionEngine, value: Mapping[str, Json], deadline_s: float = 5.0) -> Outcome:
    await engine.start()
    (outcome,) = await engine.infer([Call("run/step#2", "run", "step", 2, "acme", "s-1", value, deadline_s)])
    return outcome


@pytest.mark.parametrize("prefix", ["async ", ""])
async def test_a_function_gets_its_model_and_gives_one(build: Build, prefix: str) -> None:
    engine = build(prefix + "def f(input: In, ctx: StepContext) -> Out: return Out(text=input.text[::-1])")
    assert await ask(engine, {"text": "abc"}) == Result({"text": "cba", "number": 0.0})


async def test_a_function_learns_what_surrounds_its_call(build: Build) -> None:
    source = """
async def f(input: In, ctx: StepContext) -> Out:
    return Out(text=f"{ctx.run_id} {ctx.step} {ctx.attempt} {ctx.tenant} {ctx.session} {ctx.idempotency_key}")
"""
    outcome = await ask(build(source), {})
    assert isinstance(outcome, Result)
    assert outcome.output["text"] == "run step 2 acme s-1 run/step"


async def test_one_of_several_is_chosen_by_call_which_is_taken_out(build: Build) -> None:
    source = """
class Strict(BaseModel, extra="forbid"):
    text: str
async def up(input: Strict, ctx: StepContext) -> Out: return Out(text=input.text.upper())
async def low(input: Strict, ctx: StepContext) -> Out: return Out(text=input.text.lower())
"""
    engine = build(source, {"up": "up", "low-er": "low"})
    assert await ask(engine, {"call": "up", "text": "aB"}) == Result({"text": "AB", "number": 0.0})
    assert await ask(engine, {"call": "low-er", "text": "aB"}) == Result({"text": "ab", "number": 0.0})
    for wrong in ("none", None, 7, ["up"], {"a": 1}):
        outcome = await ask(engine, {"call": wrong, "text": "aB"})
        assert isinstance(outcome, CallerFault)
        assert str(outcome) == "input.call: must be one of low-er, up"


async def test_the_only_function_keeps_an_input_called_call(build: Build) -> None:
    source = """
class Phone(BaseModel):
    call: str
async def f(input: Phone, ctx: StepContext) -> Out: return Out(text=input.call)
"""
    assert await ask(build(source), {"call": "mum"}) == Result({"text": "mum", "number": 0.0})


@pytest.mark.parametrize(
    ("body", "code", "retryable", "says"),
    [
        ("raise StepError('only one SELECT')", ErrorCode.ENGINE_FAILED, False, "only one SELECT"),
        ("raise StepError('again', retryable=True)", ErrorCode.ENGINE_FAILED, True, "again"),
        ("raise StepError('no', code=ErrorCode.INVALID_INPUT)", ErrorCode.INVALID_INPUT, False, "no"),
        ("raise KeyError('private')", ErrorCode.ENGINE_FAILED, True, "KeyError at functions_"),
        ("return next(iter([]))", ErrorCode.ENGINE_FAILED, True, "RuntimeError at "),
        ("raise SystemExit('private')", ErrorCode.ENGINE_FAILED, True, "SystemExit at functions_"),
        ("return {'text': 'private'}", ErrorCode.ENGINE_FAILED, False, "returned dict, not Out"),
        ("return Out(text=chr(0xD800))", ErrorCode.ENGINE_FAILED, True, ""),
        ("return Out(text=['private'])", ErrorCode.ENGINE_FAILED, True, "ValidationError at functions_"),
    ],
)
@pytest.mark.parametrize("prefix", ["async ", ""])
async def test_a_function_that_fails_says_why_and_nothing_private(
    build: Build, *, prefix: str, body: str, code: ErrorCode, retryable: bool, says: str
) -> None:
    outcome = await ask(build(f"{prefix}def f(input: In, ctx: StepContext) -> Out:\n    {body}"), {"text": "x"})
    assert isinstance(outcome, EngineError)
    assert (outcome.code, outcome.retryable) == (code, retryable)
    assert says in str(outcome)
    assert "private" not in str(outcome)


async def test_an_output_is_always_json(build: Build) -> None:
    engine = build("async def f(input: In, ctx: StepContext) -> Out: return Out(text='', number=float('nan'))")
    assert await ask(engine, {}) == Result({"text": "", "number": None})


async def test_a_plain_function_runs_in_one_of_few_threads_off_the_loop(build: Build) -> None:
    source = """
most, now, lock = 0, 0, threading.Lock()
def f(input: In, ctx: StepContext) -> Out:
    global most, now
    with lock: now += 1; most = max(most, now)
    time.sleep(0.02)
    with lock: now -= 1
    return Out(text=threading.current_thread().name, number=most)
"""
    engine = build(source)
    await engine.start()
    calls = [Call(f"r{n}/s#1", f"r{n}", "s", 1, "acme", None, {}, 5) for n in range(6)]
    outcomes = await engine.infer(calls)
    assert all(isinstance(o, Result) and o.output["text"] != threading.main_thread().name for o in outcomes)
    assert max(o.output["number"] for o in outcomes if isinstance(o, Result)) == 2


async def test_a_plain_function_is_told_that_nobody_waits(build: Build) -> None:
    source = """
told = threading.Event()
def f(input: In, ctx: StepContext) -> Out:
    if ctx.cancelled.wait(10): told.set()
    return Out(text="")
"""
    engine = build(source)
    assert isinstance(await ask(engine, {}, deadline_s=0.05), DeadlineExceeded)
    (function,) = engine._functions.values()
    assert function.module.told.wait(5)


async def test_a_module_warms_up_once_with_the_home_before_the_first_call(build: Build, tmp_path: Path) -> None:
    source = """
homes = []
def warm_up(home: Path) -> None: homes.append(home)
async def f(input: In, ctx: StepContext) -> Out: return Out(text=str(homes))
async def g(input: In, ctx: StepContext) -> Out: return Out(text=str(homes))
"""
    engine = build(source, {"f": "f", "g": "g"})
    await engine.start()
    await engine.start()
    outcome = await ask(engine, {"call": "g"})
    assert isinstance(outcome, Result)
    assert outcome.output["text"] == str([tmp_path])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("", "has no attribute 'f'"),
        ("f = 7", "TypeError"),
        ("def f(input: In, ctx: StepContext): ...", "write it as"),
        ("def f(input, ctx) -> Out: ...", "write it as"),
        ("def f(input: dict, ctx: StepContext) -> Out: ...", "write it as"),
        ("def f() -> Out: ...", "write it as"),
        ("def f(input: In) -> Out: ...", "write it as"),
        ("def f(input: Inn, ctx: StepContext) -> Out: ...", "name 'Inn' is not defined"),
        ("def f(:", "SyntaxError"),
        (
            "def f(input: In, ctx: StepContext) -> Out: ...\ndef warm_up(home): raise OSError('disk full')",
            "warm_up: OSError: disk full",
        ),
    ],
)
async def test_a_module_that_cannot_serve_stops_the_start_with_the_reason(
    build: Build, source: str, says: str
) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        await build(source).start()
    assert says in str(caught.value)


HEALTHY = "async def f(input: In, ctx: StepContext) -> Out: return Out(text=input.text)\n"


async def test_health_is_a_call_with_the_health_input(build: Build) -> None:
    source = "async def f(input: In, ctx: StepContext) -> Out:\n    assert input.text\n    return Out(text='')"
    engine = build(source, health_input={"text": "hello"})
    await engine.start()
    await engine.health()
    sick = build(source, health_input={"text": ""})
    await sick.start()
    with pytest.raises(EngineUnavailable, match="AssertionError"):
        await sick.health()


@pytest.mark.parametrize("prefix", ["async ", ""])
async def test_health_is_the_modules_own_where_it_has_one(build: Build, prefix: str) -> None:
    engine = build(HEALTHY + "ill = False\n" + prefix + "def health():\n    assert not ill, 'no database'")
    await engine.start()
    await engine.health()
    (function,) = engine._functions.values()
    function.module.ill = True  # type: ignore[attr-defined]
    with pytest.raises(EngineUnavailable, match="health: AssertionError: no database"):
        await engine.health()


async def test_a_function_that_could_be_imported_is_healthy_and_says_that_it_was_not_called(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = build(HEALTHY)
    await engine.start()
    await engine.start()
    assert capsys.readouterr().err.count("functions_not_checked") == 1
    await engine.health()


async def test_it_refuses_calls_before_its_start_and_after_its_end(build: Build) -> None:
    engine = build(HEALTHY)
    call = Call("r/s#1", "r", "s", 1, "acme", None, {}, 5)
    (early,) = await engine.infer([call])
    await engine.start()
    await engine.stop()
    await engine.stop()
    (late,) = await engine.infer([call])
    assert isinstance(early, EngineUnavailable)
    assert isinstance(late, EngineUnavailable)


async def test_a_file_of_the_folder_hides_no_installed_package(build: Build, tmp_path: Path) -> None:
    (tmp_path / "functions" / "fractions.py").write_text("raise RuntimeError", "utf-8")
    assert isinstance(await ask(build("import fractions\n" + HEALTHY), {}), Result)


async def test_an_unhappy_neighbour_changes_nothing(build: Build) -> None:
    engine = build("async def f(input: In, ctx: StepContext) -> Out: return Out(text=str(1 / len(input.text)))")
    await engine.start()
    calls = [Call(f"{n}/s#1", n, "s", 1, "acme", None, {"text": n}, 5) for n in ("a", "", "bb")]
    first, bad, last = await engine.infer(calls)
    assert isinstance(bad, EngineFailed)
    assert (first, last) == (Result({"text": "1.0", "number": 0.0}), Result({"text": "0.5", "number": 0.0}))
