"""`openai`: chat completions of any server that speaks OpenAI's protocol."""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from schemas.base import Json
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
    Load,
    Outcome,
    Result,
)
from services.worker.engines.chat_answer import ChatAnswer
from services.worker.engines.http_calls import Answer, HttpCalls, header_value, retry_after_s
from services.worker.engines.metrics_page import read_load
from services.worker.engines.outcomes import answer_each, health_call, read_input, require_result

MAX_TOKENS = 4_096
MAX_ANSWER_BYTES = 4 << 20  # 4,096 chunks of a token, each in a JSON object of some hundred bytes
MAX_FORMAT_BYTES = 16_384
_TOO_LONG = frozenset(("exceed_context_size_error", "context_length_exceeded"))
_SAYS_TOO_LONG = re.compile(rb"maximum context length|too long to fit into the model")
"""How vLLM says the same: its type is `BadRequestError`, whatever was wrong."""
_OUT_OF_CREDIT = "insufficient_quota"


class ChatMessage(BaseModel):
    """One turn."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=262_144)]


class Chat(BaseModel):
    """The input: what a pipeline may ask for. The address, the model and the key are the backend's."""

    model_config = ConfigDict(extra="forbid")

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=256)]
    max_tokens: int = Field(default=256, ge=1, le=MAX_TOKENS)
    temperature: float = Field(default=0.0, ge=0, le=2, description="0 repeats its answers.")
    stop: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=4)] | None = None
    response_format: dict[str, Json] | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_more(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("response_format")
    @classmethod
    def _is_small(cls, value: dict[str, Json] | None) -> dict[str, Json] | None:
        if len(json.dumps(value)) > MAX_FORMAT_BYTES:
            raise ValueError(f"longer than {MAX_FORMAT_BYTES} bytes")
        return value


class OpenAIEngine:
    """Chat: `{"messages": […], "max_tokens": n, …}` → `{"text": str, "finish_reason": str}`, with token counts.

    `base_url` is what OpenAI's clients take: up to and with `/v1`. Redirects are not followed, since one could
    carry the prompt elsewhere. Answers are streamed, whoever listens: a server that streams finds out at the next
    token that nobody does any more, and stops.
    """

    max_batch = 1

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        api_key_env: str | None = None,
        by_proxy: bool = True,
    ) -> None:
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._metrics_url = base_url.rstrip("/").removesuffix("/v1") + "/metrics"
        self._model = model
        self._api_key = api_key
        self._api_key_env = api_key_env
        self._by_proxy = by_proxy
        self._calls: HttpCalls | None = None

    async def start(self) -> None:
        if self._calls is not None:
            return
        self._calls = HttpCalls(
            self._url,
            self._authorization(),
            max_answer_bytes=MAX_ANSWER_BYTES,
            by_proxy=self._by_proxy,
            # Where no TLS handshake is spared, none is kept: llama.cpp has a thread for each, and under load it
            # closes those that wait.
            keeps_connections=self._url.startswith("https:"),
        )
        try:
            await self.health(FIRST_HEALTH_TIMEOUT_S)
        except BaseException:
            await self.stop()
            raise

    def _authorization(self) -> dict[str, str]:
        if not (self._api_key or self._api_key_env):
            return {}
        return {"Authorization": f"Bearer {header_value(self._api_key, self._api_key_env or 'api_key_env')}"}

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """One token."""
        require_result(await self.infer([health_call({"messages": _PROBE, "max_tokens": 1}, timeout_s)]))

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        return await answer_each(calls, self._chat)

    async def measure(self) -> Load | None:
        """Of the whole server, whoever asks it for answers. None where it tells nobody, like a hosted API."""
        if self._calls is None:
            raise EngineUnavailable("not started")
        answer = await self._calls.page(self._metrics_url)
        return read_load(answer.content.decode(errors="replace")) if answer.status == 200 else None

    async def _chat(self, call: Call) -> Result:
        chat = read_input(Chat, call.input)
        body = {"model": self._model, "stream": True, "stream_options": {"include_usage": True}}
        body |= chat.model_dump(exclude_none=True)
        if self._calls is None:
            raise EngineUnavailable("not started")
        reading = ChatAnswer(call.on_text)
        answer = await self._calls.send(json.dumps(body).encode(), on_data=reading.feed)
        if answer.status != 200:
            raise self._refusal(answer)
        return reading.result(answer.content)

    def _refusal(self, answer: Answer) -> EngineError:
        """What a status means. Only the error type is passed on: the server's other words may quote a prompt."""
        status, kind = answer.status, _error_kind(answer.content)
        said = f"{self._url} answered {status}" + (f" {kind}" if kind else "")
        if status == 413 or kind in _TOO_LONG or (status == 400 and _SAYS_TOO_LONG.search(answer.content)):
            return ContentTooLarge(f"input.messages: longer than the model's context ({said})")
        if kind == _OUT_OF_CREDIT:
            return EngineFailed(f"{said}: the account has no credit left", retryable=False)
        if status in (401, 403):
            return EngineFailed(f"{said}: check {self._api_key_env or 'api_key_env'}", retryable=False)
        if status in (404, 405) or 300 <= status < 400:
            return EngineFailed(f"{said}: check base_url (it usually ends in /v1) and model", retryable=False)
        if status in (429, 503):
            return EngineOverloaded(said, retry_after_s=retry_after_s(answer.headers))
        if status == 408 or status >= 500:
            return EngineUnavailable(said, retry_after_s=retry_after_s(answer.headers))
        return CallerFault(f"input: {said}")

    async def sleep(self) -> None:
        """Nothing: the server keeps its own memory."""

    async def wake(self) -> None:
        """Nothing."""

    async def stop(self) -> None:
        calls, self._calls = self._calls, None
        if calls is not None:
            await calls.close()


_PROBE: list[Json] = [{"role": "user", "content": "Hi"}]


def _error_kind(body: bytes) -> str | None:
    """`error.code` or `error.type` of an OpenAI error object, if it is one word."""
    try:
        error = json.loads(body)["error"]
        words = [error.get("code"), error.get("type")]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return next((w for w in words if isinstance(w, str) and w.isidentifier() and len(w) <= 64), None)
