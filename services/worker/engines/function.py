"""`function`: Python callables of the configuration folder: retrieval, SQL, code, tools."""

import asyncio
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel

from headway.functions import StepContext, StepError
from schemas.base import Json
from services.chassis.logging import log
from services.worker.domain.engine import (
    HEALTH_TIMEOUT_S,
    Call,
    CallerFault,
    EngineError,
    EngineFailed,
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.engines.outcomes import answer_each, health_call, read_input, require_result

WARM_UP_TIMEOUT_S = 300.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Function:
    path: str
    module: ModuleType
    run: Callable[[Any, StepContext], Any]
    takes: type[BaseModel]
    gives: type[BaseModel]


class FunctionEngine:
    """Calls `module:function`, or the one of several that `input.call` names.

    A coroutine runs on the event loop and ends when its call is cancelled. A plain `def` runs in one of
    `slots + 1` threads: it cannot be stopped, so `ctx.cancelled` is set, and its thread is taken until it returns.
    """

    max_batch = 1

    def __init__(
        self, functions: str | Mapping[str, str], *, slots: int, home: Path, folder: Path, health_input: Json = None
    ) -> None:
        self._paths = {"": functions} if isinstance(functions, str) else dict(functions)
        self._has_one = isinstance(functions, str)
        self._functions: dict[str, _Function] = {}
        self._threads = ThreadPoolExecutor(slots + 1, "function")  # one for a health check
        self._home = home
        self._folder = folder
        self._health_input = health_input

    async def start(self) -> None:
        """Import the modules and let each warm up."""
        if self._functions:
            return
        if str(self._folder) not in sys.path:
            sys.path.append(str(self._folder))  # last: no file in it hides an installed package
        functions = {name: await self._in_thread(_load, path) for name, path in self._paths.items()}
        for module in _modules(functions):
            await self._hook(module, "warm_up", self._home, timeout_s=WARM_UP_TIMEOUT_S)
        self._functions = functions
        unproven = [module.__name__ for module in _modules(functions) if not hasattr(module, "health")]
        if unproven and self._health_input is None:
            log.warning(
                "functions_not_checked", modules=unproven, why="no health_input, and no health() in the module"
            )

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """A call with `health_input` where there is one, else each module's `health()` where it has one.

        Without either nothing is called: it is healthy as long as its modules are loaded.
        """
        if self._health_input is not None:
            require_result(await self.infer([health_call(self._health_input, timeout_s)]))
            return
        for module in _modules(self._functions):
            await self._hook(module, "health", timeout_s=timeout_s)

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        return await answer_each(calls, self._answer)

    async def _answer(self, call: Call) -> Result:
        function, value = self._chosen(call.input)
        given = read_input(function.takes, value)
        ctx = StepContext(call.run_id, call.step, call.attempt, call.tenant, call.session, call.deadline_s)
        try:
            made = await self._run(function, given, ctx)
        except StepError as error:
            raise _refusal(error) from None
        finally:
            ctx.cancelled.set()
        if not isinstance(made, function.gives):
            wanted, got = function.gives.__name__, type(made).__name__
            raise EngineFailed(f"{function.path} returned {got}, not {wanted}", retryable=False)
        return Result(json.loads(made.model_dump_json()))  # JSON for certain: no NaN, no lone surrogate

    def _chosen(self, value: Mapping[str, Json]) -> tuple[_Function, Mapping[str, Json]]:
        if not self._functions:
            raise EngineUnavailable("the functions are not loaded: start the engine first")
        if self._has_one:
            return self._functions[""], value
        name = value.get("call")
        if not isinstance(name, str) or name not in self._functions:
            raise CallerFault(f"input.call: must be one of {', '.join(sorted(self._functions))}")
        return self._functions[name], {key: item for key, item in value.items() if key != "call"}

    async def _run(self, function: _Function, given: BaseModel, ctx: StepContext) -> object:
        if inspect.iscoroutinefunction(function.run):
            return await function.run(given, ctx)
        return await self._in_thread(function.run, given, ctx)

    async def _in_thread(self, run: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _safely, run, *args)

    async def _hook(self, module: ModuleType, name: str, *args: object, timeout_s: float) -> None:
        """An optional function of a module. No call is involved, so its error is shown whole."""
        hook = getattr(module, name, None)
        if hook is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await (hook(*args) if inspect.iscoroutinefunction(hook) else self._in_thread(hook, *args))
        except Exception as error:
            raise EngineUnavailable(f"{module.__name__}.{name}: {type(error).__name__}: {error}") from error

    async def sleep(self) -> None:
        """Nothing: Python does not unload a module."""

    async def wake(self) -> None:
        """Nothing."""

    async def stop(self) -> None:
        """Calls that wait for a thread are dropped; one that runs cannot be stopped and is not waited for."""
        self._functions = {}
        self._threads.shutdown(wait=False, cancel_futures=True)


def _load(path: str) -> _Function:
    """Import `module:function` and read its two models; EngineUnavailable says what is wrong with it."""
    module_name, _, name = path.partition(":")
    try:
        module = import_module(module_name)
        run = getattr(module, name)
        takes, gives = _models(run)
    except Exception as error:
        raise EngineUnavailable(f"{path}: {type(error).__name__}: {error}") from error
    return _Function(path, module, run, takes, gives)


def _models(run: Callable[..., Any]) -> tuple[type[BaseModel], type[BaseModel]]:
    hints, parameters = get_type_hints(run), [*inspect.signature(run).parameters]
    models = (hints.get(next(iter(parameters), "")), hints.get("return"))
    if len(parameters) != 2 or not all(isinstance(m, type) and issubclass(m, BaseModel) for m in models):
        raise TypeError("write it as `async def f(input: In, ctx: StepContext) -> Out`, In and Out pydantic models")
    return models  # type: ignore[return-value]


def _modules(functions: Mapping[str, _Function]) -> list[ModuleType]:
    return list({function.module.__name__: function.module for function in functions.values()}.values())


def _safely(run: Callable[..., T], *args: object) -> T:
    """StopIteration cannot pass through a future: whoever waits for it would wait for ever."""
    try:
        return run(*args)
    except StopIteration as error:
        raise RuntimeError("StopIteration") from error


def _refusal(error: StepError) -> EngineError:
    refusal = EngineFailed(str(error), retryable=error.retryable)
    refusal.code = error.code
    return refusal
