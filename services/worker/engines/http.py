"""`http`: any function that takes and gives JSON over HTTP: serverless, or a service behind a proxy."""

import asyncio
import json
from collections.abc import Mapping, Sequence

from pydantic_core import from_json

from schemas import models
from schemas.base import Json
from schemas.usage import TokenUsage
from services.worker.domain.engine import (
    FIRST_HEALTH_TIMEOUT_S,
    HEALTH_TIMEOUT_S,
    Call,
    CallerFault,
    ContentTooLarge,
    EngineError,
    EngineFailed,
    EngineOverloaded,
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.engines.http_calls import Answer, HttpCalls, header_value, retry_after_s
from services.worker.engines.outcomes import answer_each, health_call, require_result

MAX_ANSWER_BYTES = 8 << 20
_UNUSUAL: dict[int, models.StatusMeaning] = {
    401: "fail", 403: "fail", 404: "fail", 405: "fail", 408: "shed", 413: "too_large",
    425: "shed", 429: "shed", 502: "shed", 503: "shed", 504: "shed",
}  # fmt: skip


class HttpEngine:
    """The step's input is the body, and the answer, or what `output` points to in it, the step's output.

    Every attempt of a step has the same `Idempotency-Key`. Redirects are not followed, since one could carry the
    input elsewhere.
    """

    max_batch = 1

    def __init__(
        self, config: models.HttpEngine, headers: Mapping[str, str | None], *, by_proxy: bool = True
    ) -> None:
        """`headers` has what the variables of `header_env` hold."""
        self._config = config
        self._headers = headers
        self._by_proxy = by_proxy
        self._calls: HttpCalls | None = None

    async def start(self) -> None:
        if self._calls is not None:
            return
        headers = {name: header_value(self._headers.get(name), env) for name, env in self._config.header_env.items()}
        self._calls = HttpCalls(self._config.url, headers, max_answer_bytes=MAX_ANSWER_BYTES, by_proxy=self._by_proxy)
        try:
            await self.health(FIRST_HEALTH_TIMEOUT_S)
        except BaseException:
            await self.stop()
            raise

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """A call with `health_input`."""
        require_result(await self.infer([health_call(self._config.health_input, timeout_s)]))

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        return await answer_each(calls, self._outcome)

    async def _outcome(self, call: Call) -> Result:
        if self._calls is None:
            raise EngineUnavailable("not started")
        answer = await self._answer(self._calls, call)
        if not 200 <= answer.status < 300:
            raise self._refusal(answer, self._calls.where)
        return self._result(answer.content)

    async def _answer(self, calls: HttpCalls, call: Call) -> Answer:
        body, timeout_ms = _encoded(call.input), self._config.timeout
        key = {"Idempotency-Key": f"{call.run_id}/{call.step}"}
        try:
            async with asyncio.timeout(timeout_ms and timeout_ms / 1_000):
                return await calls.send(body, method=self._config.method, headers=key)
        except TimeoutError:
            raise EngineUnavailable(f"{calls.where} did not answer within {timeout_ms} ms") from None

    def _refusal(self, answer: Answer, where: str) -> EngineError:
        """What a status means. The answer's own words may quote the input, and are not passed on."""
        said = f"{where} answered {answer.status}"
        match self._config.statuses.get(answer.status) or _usual(answer.status):
            case "caller_fault":
                return CallerFault(f"input: {said}")
            case "too_large":
                return ContentTooLarge(f"input: {said}")
            case "fail":
                return EngineFailed(f"{said}: check url and header_env", retryable=False)
            case "retry":
                return EngineFailed(said)
            case "shed":
                return EngineOverloaded(said, retry_after_s=retry_after_s(answer.headers))

    def _result(self, content: bytes) -> Result:
        try:
            answer: Json = from_json(content, allow_inf_nan=False)
        except ValueError:
            raise EngineFailed("the answer is no JSON") from None
        try:
            output = _at(answer, self._config.output)
        except LookupError:
            raise EngineFailed(f"the answer has no {self._config.output}") from None
        counted = (_count(answer, pointer) for pointer in (self._config.input_tokens, self._config.output_tokens))
        input_tokens, output_tokens = counted
        return Result(output, TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens))

    async def sleep(self) -> None:
        """Nothing: the function keeps its own memory."""

    async def wake(self) -> None:
        """Nothing."""

    async def stop(self) -> None:
        calls, self._calls = self._calls, None
        if calls is not None:
            await calls.close()


def _encoded(value: Mapping[str, Json]) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise CallerFault("input: holds what JSON cannot: half a surrogate pair, or a number that is none") from None


def _usual(status: int) -> models.StatusMeaning:
    if status < 400:
        return "fail"
    return _UNUSUAL.get(status) or ("caller_fault" if status < 500 else "retry")


def _at(value: Json, pointer: str) -> Json:
    """What a JSON pointer (RFC 6901) points to; LookupError when there is nothing."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and key.isdecimal():
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value[key]
        else:
            raise LookupError(key)
    return value


def _count(answer: Json, pointer: str | None) -> int:
    """A number of tokens; 0 where none is told."""
    try:
        found = 0 if pointer is None else _at(answer, pointer)
    except LookupError:
        return 0
    return found if type(found) is int and found >= 0 else 0
