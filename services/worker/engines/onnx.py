"""`onnx`: small models on a CPU, by onnxruntime in this process, off the event loop in a thread of their own."""

import asyncio
import ctypes
import gc
import time
from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from headway.minilm import DIMENSIONS, MODEL, MiniLM
from schemas.usage import TokenUsage
from services.worker.domain.engine import (
    HEALTH_TIMEOUT_S,
    Call,
    EngineError,
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.engines.outcomes import INSTALL, failed, late, read_input

if TYPE_CHECKING:
    from onnxruntime import RunOptions

MAX_TEXTS = 256
MAX_TEXT_CHARS = 32_768


class Texts(BaseModel):
    """The input: texts to embed. The model reads the first 256 tokens of each, about 1,000 characters."""

    model_config = ConfigDict(extra="forbid")

    texts: Annotated[list[Annotated[str, Field(max_length=MAX_TEXT_CHARS)]], Field(max_length=MAX_TEXTS)]


class OnnxEngine:
    """Embeddings: `{"texts": [n]}` → `{"vectors": [n × base64 of 384 little-endian float32], "dimensions": 384}`.

    All texts of a batch run together, sorted by length. Vectors have length 1.
    """

    max_batch = 32

    def __init__(self, model: str, *, threads: int = 1) -> None:
        self._name = model
        self._threads = threads
        self._model: MiniLM | None = None
        self._thread = ThreadPoolExecutor(1, "onnx")

    async def start(self) -> None:
        """Load the weights: about 0.5 s."""
        await self.wake()

    async def wake(self) -> None:
        if self._model is not None:
            return
        if self._name != MODEL:
            raise EngineUnavailable(f"onnx has no model {self._name!r}; it has {MODEL}")
        model = MiniLM(self._threads)
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, model.load)
        except ImportError as error:
            raise EngineUnavailable(f"{error.name} is not installed: {INSTALL}") from None
        self._model = model

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """Embed a word, beside the running batch rather than behind it."""
        model = self._loaded()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.to_thread(model.encode, ["health"])
        except Exception as error:
            raise EngineUnavailable(f"the health check failed: {failed(error)}") from None

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        started = time.monotonic()
        inputs = [_read(call) for call in calls]
        deadline_s = max((call.deadline_s for call in calls), default=0.0)
        embedded = iter(await self._embed([item for item in inputs if isinstance(item, list)], deadline_s))
        outcomes = [item if isinstance(item, EngineError) else next(embedded) for item in inputs]
        spent_s = time.monotonic() - started
        return [late(c) if spent_s >= c.deadline_s else o for c, o in zip(calls, outcomes, strict=True)]

    async def _embed(self, inputs: Sequence[list[str]], deadline_s: float) -> list[Outcome]:
        """One outcome per input, of one run over the texts of all."""
        from onnxruntime import RunOptions

        options = RunOptions()
        texts = list(chain.from_iterable(inputs))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(deadline_s):
                rows = iter(await loop.run_in_executor(self._thread, _run, self._loaded(), texts, options))
        except EngineError as error:
            return [error] * len(inputs)
        except Exception as error:
            return [failed(error)] * len(inputs)
        finally:
            options.terminate = True  # stops the run if nobody waits for it any more
        return [_result(list(islice(rows, len(texts)))) for texts in inputs]

    def _loaded(self) -> MiniLM:
        if self._model is None:
            raise EngineUnavailable("the model is not loaded: start or wake the engine first")
        return self._model

    async def sleep(self) -> None:
        self._model = None
        _give_back_memory()

    async def stop(self) -> None:
        await self.sleep()
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)


Row = tuple[str, int]
"""The base64 of a text's vector, and the tokens it took."""


def _read(call: Call) -> list[str] | EngineError:
    try:
        return read_input(Texts, call.input).texts
    except EngineError as error:
        return error


def _run(model: MiniLM, texts: list[str], options: "RunOptions") -> list[Row]:
    tokens = model.tokenize(texts)
    vectors = model.embed(tokens, options).astype("<f4")
    return [(b64encode(row.tobytes()).decode(), len(ids)) for row, ids in zip(vectors, tokens, strict=True)]


def _result(rows: list[Row]) -> Result:
    vectors = [vector for vector, _ in rows]
    usage = TokenUsage(input_tokens=sum(tokens for _, tokens in rows))
    return Result({"vectors": vectors, "dimensions": DIMENSIONS}, usage)


def _give_back_memory() -> None:
    """To the system at once: glibc would keep 220 MB of a model that sleeps."""
    gc.collect()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
