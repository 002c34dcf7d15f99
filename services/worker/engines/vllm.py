"""`vllm`: an LLM on GPUs, by vLLM's AsyncLLM in the worker process."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from schemas import models
from schemas.base import Json, Priority
from services.worker.domain.engine import (
    HEALTH_TIMEOUT_S,
    Call,
    EngineEnded,
    EngineUnavailable,
    Load,
    Outcome,
    Result,
)
from services.worker.engines.openai import Chat
from services.worker.engines.outcomes import answer_each, health_call, read_input, require_result
from services.worker.engines.vllm_loading import load_model

RANKS = {Priority.INTERACTIVE: 0, Priority.STANDARD: 1, Priority.BATCH: 2}
"""vLLM serves the lowest number first, and puts back what has a higher one when memory is short."""
HEALTH_RANK = -1
_PROBE: list[Json] = [{"role": "user", "content": "Hi"}]


class Model(Protocol):
    """A model that vLLM has loaded."""

    @property
    def ended(self) -> bool:
        """Whether one of its processes is gone: it answers nothing any more."""

    @property
    def can_sleep(self) -> bool:
        """Whether it can give its GPU's memory back and stay loaded."""

    @property
    def load(self) -> Load:
        """What it has to do."""

    async def answer(self, call: Call, chat: Chat, rank: int) -> Result:
        """As `Engine.infer`, of one call. Cancelling it stops the model's work on it."""

    async def sleep(self, level: int) -> None:
        """Gives the GPU's memory back; what still runs ends without an answer."""

    async def wake(self, level: int) -> None:
        """After a sleep of that level."""

    async def close(self) -> None:
        """Ends its processes, which takes some seconds, and what still runs."""


Loader = Callable[[models.VllmEngine, int], Awaitable[Model]]


class VllmEngine:
    """Chat as `OpenAIEngine` has it, so that a model class moves from `llamacpp` or `openai` to it as it is.

    It runs one call more than the worker has slots, so that a health check is answered while all are busy. Asleep
    it has given its GPU's memory back: at level 1 the weights wait in the machine's memory, at level 2 they are read
    again. Where vLLM cannot sleep, as on a CPU, it is unloaded, and loaded again.
    """

    max_batch = 1

    def __init__(self, config: models.VllmEngine, *, slots: int, load: Loader = load_model) -> None:
        self._config = config
        self._calls = slots + 1
        self._load = load
        self._model: Model | None = None
        self._asleep = False
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Load the model: minutes for a large one. EngineEnded when it was loaded and has ended.

        A new process loads it as fast, and without what ended this one; meanwhile other workers have its tasks.
        """
        async with self._changing:
            if self._model is not None and self._model.ended:
                raise EngineEnded("vLLM has ended: another process has to load it")
            await self._rouse()

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """One token, before everything else."""
        probe = health_call({"messages": _PROBE, "max_tokens": 1}, timeout_s)
        require_result(await answer_each([probe], lambda call: self._chat(call, HEALTH_RANK)))

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        return await answer_each(calls, lambda call: self._chat(call, RANKS[call.priority]))

    async def _chat(self, call: Call, rank: int) -> Result:
        chat = read_input(Chat, call.input)
        return await self._awake().answer(call, chat, rank)

    def _awake(self) -> Model:
        if self._model is None or self._asleep:
            raise EngineUnavailable("vLLM is not loaded, or asleep: start or wake the engine first")
        return self._model

    async def measure(self) -> Load | None:
        """As its scheduler counted at its last step."""
        return self._awake().load

    async def sleep(self) -> None:
        async with self._changing:
            if self._model is None or self._asleep:
                return
            if self._model.can_sleep and not self._model.ended:
                await self._model.sleep(self._config.sleep_level)
                self._asleep = True
            else:
                await self._unload()

    async def wake(self) -> None:
        async with self._changing:
            await self._rouse()

    async def stop(self) -> None:
        async with self._changing:
            await self._unload()

    async def _rouse(self) -> None:
        if self._model is None:
            self._model = await self._load(self._config, self._calls)
        elif self._asleep:
            await self._model.wake(self._config.sleep_level)
        self._asleep = False

    async def _unload(self) -> None:
        model, self._model, self._asleep = self._model, None, False
        if model is not None:
            await model.close()
