"""`simulated`: no model, but its latencies, cold starts and faults, seeded; for load tests and simulations."""

import asyncio
import math
import random
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.models import Latency
from schemas.models import SimulatedEngine as Config
from services.worker.domain.engine import (
    HEALTH_TIMEOUT_S,
    Call,
    CallerFault,
    ContentTooLarge,
    DeadlineExceeded,
    EngineError,
    EngineFailed,
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.engines.outcomes import answer_each, health_call, read_input, require_result

SLOW_FACTOR = 10.0
WAKE_SHARE = 0.1
"""Of a cold start."""
_Z99 = 2.3263478740408408
"""The 99th percentile of the standard normal distribution."""
_ERRORS: dict[str, type[EngineError]] = {
    error.code.value: error
    for error in (CallerFault, ContentTooLarge, DeadlineExceeded, EngineUnavailable, EngineFailed)
}


class Script(BaseModel):
    """`input.simulate`: what one call is to do instead."""

    model_config = ConfigDict(
        extra="forbid", frozen=True
    )  # frozen: as a default it need not be copied for every call

    latency_ms: float | None = Field(default=None, ge=0, le=3_600_000)
    fail: (
        Literal["invalid_input", "content_too_large", "deadline_exceeded", "engine_unavailable", "engine_failed"]
        | None
    ) = None
    hang: bool = False


class SimulatedInput(BaseModel):
    """Anything; `simulate` is taken out."""

    model_config = ConfigDict(extra="allow")

    simulate: Script = Script()


class SimulatedEngine:
    """Waits, then answers with `output`, or with its input where there is none.

    A call's latency and luck depend on the seed and its task id alone: the order of calls changes nothing.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._started_at: float | None = None
        self._awake = False

    @property
    def max_batch(self) -> int:
        return self._config.max_batch

    async def start(self) -> None:
        if self._started_at is None:
            self._started_at = asyncio.get_running_loop().time()
        await self._load(self._config.cold_start_ms)

    async def wake(self) -> None:
        config = self._config
        await self._load(WAKE_SHARE * config.cold_start_ms if config.wake_ms is None else config.wake_ms)

    async def _load(self, takes_ms: float) -> None:
        if not self._awake:
            await asyncio.sleep(takes_ms / 1_000)
            self._awake = True

    async def sleep(self) -> None:
        self._awake = False

    async def stop(self) -> None:
        self._awake = False

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """A call without latency or bad luck, but in the midst of any outage."""
        probe = health_call({"simulate": {"latency_ms": 0}}, timeout_s)
        require_result(await answer_each([probe], lambda call: self._answer(call, error_rate=0)))

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        return await answer_each(calls, lambda call: self._answer(call, self._config.error_rate))

    async def _answer(self, call: Call, error_rate: float) -> Result:
        if not self._awake:
            raise EngineUnavailable("the engine is asleep: start or wake it first")
        given = read_input(SimulatedInput, call.input)
        await self._work(given.simulate, f"{self._config.seed}:{call.task_id}", error_rate)
        return Result(given.model_extra if self._config.output is None else self._config.output)

    async def _work(self, script: Script, seed: str, error_rate: float) -> None:
        outage = self._outage()
        if outage == "fail":
            raise EngineUnavailable("simulated outage")
        if outage == "hang" or script.hang:
            await asyncio.Event().wait()  # until the call's deadline
        latency_ms = _drawn_ms(self._config.latency_ms, seed) if script.latency_ms is None else script.latency_ms
        await asyncio.sleep(latency_ms / 1_000 * (SLOW_FACTOR if outage == "slow" else 1))
        if script.fail is not None:
            raise _ERRORS[script.fail]("simulated failure")
        if error_rate and random.Random(f"{seed}!").random() < error_rate:
            raise EngineFailed("simulated bad luck")

    def _outage(self) -> Literal["fail", "hang", "slow"] | None:
        assert self._started_at is not None
        now_s = asyncio.get_running_loop().time() - self._started_at
        return next((o.kind for o in self._config.outages if 0 <= now_s - o.after_s < o.for_s), None)


def _drawn_ms(latency: float | Latency, seed: str) -> float:
    """Constant, or lognormal with the given median and 99th percentile."""
    if not isinstance(latency, Latency):
        return latency
    return random.Random(seed).lognormvariate(math.log(latency.p50), math.log(latency.p99 / latency.p50) / _Z99)
