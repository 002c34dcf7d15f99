"""`triton`: a model of Triton, or of another server of the Open Inference Protocol."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from schemas import models
from services.worker.domain.engine import (
    FIRST_HEALTH_TIMEOUT_S,
    HEALTH_TIMEOUT_S,
    Call,
    DeadlineExceeded,
    EngineError,
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.engines.http_calls import header_value
from services.worker.engines.outcomes import answer_each, health_call, require_result

if TYPE_CHECKING:
    from services.worker.engines.open_inference import ServedModel

INSTALL = "pip install 'headway[triton]'"


class TritonEngine:
    """`{"TEXT": ["a"], …}` → `{"SCORES": [0.1], …}`: the model's tensors, in its own names and shapes.

    The answers of a decoupled model are collected: `{"responses": [{…}, …]}`. The server batches. With
    `model_control: explicit` the model is loaded and unloaded here, and loaded anew when it is ill.
    """

    max_batch = 1

    def __init__(self, config: models.TritonEngine, headers: Mapping[str, str | None]) -> None:
        """`headers` has what the variables of `header_env` hold."""
        self._config = config
        self._headers = headers
        self._probe = config.health_input or {}
        self._model: ServedModel | None = None
        self._lost_a_process = False
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Load the model if that is ours to do; one that is ill is unloaded first."""
        async with self._changing:
            try:
                await self._start()
            except BaseException as error:
                await self._close()
                if isinstance(error, EngineError) and not isinstance(error, EngineUnavailable):
                    raise EngineUnavailable(str(error)) from error
                raise

    async def _start(self) -> None:
        is_first = self._model is None
        if self._model is None:
            await self._open()
        try:
            await self.health(FIRST_HEALTH_TIMEOUT_S if is_first else HEALTH_TIMEOUT_S)
        except EngineUnavailable:
            if not self._controls:
                raise
            await self._close()
            await self._open(ill=True)
            await self.health(FIRST_HEALTH_TIMEOUT_S)

    @property
    def _controls(self) -> bool:
        return self._config.model_control == "explicit"

    async def _open(self, *, ill: bool = False) -> None:
        try:
            from services.worker.engines.open_inference import ServedModel
        except ImportError as error:
            raise EngineUnavailable(f"{error.name} is not installed: {INSTALL}") from None
        names = self._config.header_env
        headers = {name: header_value(self._headers.get(name), variable) for name, variable in names.items()}
        self._model = ServedModel(self._config, headers)
        if ill:
            await self._model.unload()  # loading alone would leave it as it is
        if self._controls and not await self._model.is_loaded():
            await self._model.load()
        signature = await self._model.describe()
        self._probe = self._config.health_input or signature.smallest()
        self._lost_a_process = False

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """A call with `health_input`, or else with zeros.

        A server that has no time for it is well if it answered others meanwhile: it is busy.
        """
        model = self._loaded()
        if self._lost_a_process:
            raise EngineUnavailable("a process of the model has died")  # a call may well meet another one
        tell_s, probe_s = timeout_s * 0.1, timeout_s * 0.8
        before = await model.answered(tell_s)
        try:
            require_result(await self.infer([health_call(self._probe, probe_s)]))
        except EngineUnavailable as error:
            is_late = isinstance(error.__cause__, DeadlineExceeded)
            if not is_late or await model.answered(tell_s) <= before:
                raise

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        return await answer_each(calls, self._answer)

    async def _answer(self, call: Call) -> Result:
        from services.worker.engines.open_inference import ModelDied

        try:
            return Result(await self._loaded().ask(call))
        except ModelDied:
            self._lost_a_process = True
            raise

    def _loaded(self) -> "ServedModel":
        if self._model is None:
            raise EngineUnavailable("the model is not loaded: start or wake the engine first")
        return self._model

    async def sleep(self) -> None:
        """Unload the model, if that is ours to do."""
        async with self._changing:
            if self._controls and self._model is not None:
                try:
                    await self._model.unload()
                finally:
                    await self._close()

    async def wake(self) -> None:
        if self._model is None:
            await self.start()

    async def stop(self) -> None:
        """End the connection. The model stays where it is: others may use it."""
        async with self._changing:
            await self._close()

    async def _close(self) -> None:
        model, self._model = self._model, None
        if model is not None:
            await model.close()
