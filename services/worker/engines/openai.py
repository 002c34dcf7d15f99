"""`openai`: chat completions of any server that speaks OpenAI's protocol."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

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
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.engines.outcomes import answer_each, health_call, read_input, require_result

MAX_TOKENS = 4_096
MAX_ANSWER_BYTES = 4 << 20  # 4,096 chunks of a token, each in a JSON object of some hundred bytes
MAX_FORMAT_BYTES = 16_384
CONNECT_TIMEOUT_S = 5.0
_TOO_LONG = frozenset(("exceed_context_size_error", "context_length_exceeded"))


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


class _Lenient(BaseModel):
    """A part of the server's answer: what is not needed may look as it likes."""


class _PromptDetails(_Lenient):
    cached_tokens: int | None = None


class _Usage(_Lenient):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None

    def counted(self) -> TokenUsage:
        cached = self.prompt_tokens_details and self.prompt_tokens_details.cached_tokens
        return TokenUsage(
            input_tokens=self.prompt_tokens, cached_tokens=cached or 0, output_tokens=self.completion_tokens
        )


class _Said(_Lenient):
    content: str | None = None


class _Choice(_Lenient):
    """Of a chunk it has a `delta`, of a whole answer a `message`."""

    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: str | None = None


class _Chunk(_Lenient):
    """A part of an answer, or all of it."""

    choices: list[_Choice]
    usage: _Usage | None = None


class OpenAIEngine:
    """Chat: `{"messages": […], "max_tokens": n, …}` → `{"text": str, "finish_reason": str}`, with token counts.

    `base_url` is what OpenAI's clients take: up to and with `/v1`. Redirects are not followed, since one could
    carry the prompt elsewhere. Answers are streamed, though only the whole is returned: a server that streams
    finds out at the next token that nobody listens any more, and stops.
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
        self._model = model
        self._api_key = api_key
        self._api_key_env = api_key_env
        self._by_proxy = by_proxy
        self._client: httpx.AsyncClient | None = None

    async def start(self) -> None:
        if self._api_key_env and not self._api_key:
            raise EngineUnavailable(f"no API key: set the environment variable {self._api_key_env}")
        if self._client is not None:
            return
        self._client = httpx.AsyncClient(
            headers={"Accept-Encoding": "identity"} | self._authorization(),
            trust_env=self._by_proxy,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),  # a call's deadline bounds the rest
            # The worker's slots bound them. None is used twice: a server may close it just then, which fails
            # a call (llama.cpp under load does), and a handshake is short beside an answer.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )
        try:
            await self.health(FIRST_HEALTH_TIMEOUT_S)
        except BaseException:
            await self.stop()
            raise

    def _authorization(self) -> dict[str, str]:
        if not self._api_key:
            return {}
        if not (self._api_key.isascii() and self._api_key.isprintable()):
            raise EngineUnavailable(f"{self._api_key_env} holds characters that no HTTP header can carry")
        return {"Authorization": f"Bearer {self._api_key}"}

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """One token."""
        require_result(await self.infer([health_call({"messages": _PROBE, "max_tokens": 1}, timeout_s)]))

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        return await answer_each(calls, self._chat)

    async def _chat(self, call: Call) -> Result:
        chat = read_input(Chat, call.input)
        body = {"model": self._model, "stream": True, "stream_options": {"include_usage": True}}
        body |= chat.model_dump(exclude_none=True)
        try:
            status, headers, answer = await self._post(body)
        except httpx.HTTPError as error:
            raise EngineUnavailable(f"{type(error).__name__} at {self._url}") from None
        if status != 200:
            raise self._refusal(status, headers, answer)
        return _read_answer(answer)

    async def _post(self, body: dict[str, Json]) -> tuple[int, Mapping[str, str], bytes]:
        if self._client is None:
            raise EngineUnavailable("not started")
        content = bytearray()
        async with self._client.stream("POST", self._url, json=body) as response:
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise EngineFailed(f"the answer is larger than {MAX_ANSWER_BYTES} bytes", retryable=False)
        return response.status_code, response.headers, bytes(content)

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> EngineError:
        """What a status means. Only the error type is passed on: the server's other words may quote a prompt."""
        kind = _error_kind(body)
        said = f"{self._url} answered {status}" + (f" {kind}" if kind else "")
        if status == 413 or kind in _TOO_LONG:
            return ContentTooLarge(f"input.messages: longer than the model's context ({said})")
        if status in (401, 403):
            return EngineFailed(f"{said}: check {self._api_key_env or 'api_key_env'}", retryable=False)
        if status in (404, 405) or 300 <= status < 400:
            return EngineFailed(f"{said}: check base_url (it usually ends in /v1) and model", retryable=False)
        if status in (408, 429) or status >= 500:
            return EngineUnavailable(said, retry_after_s=_retry_after(headers))
        return CallerFault(f"input: {said}")

    async def sleep(self) -> None:
        """Nothing: the server keeps its own memory."""

    async def wake(self) -> None:
        """Nothing."""

    async def stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


_PROBE: list[Json] = [{"role": "user", "content": "Hi"}]


def _read_answer(body: bytes) -> Result:
    """The text and usage of a stream of chunks, or of a single object from a server that does not stream."""
    text, finish_reason, usage = "", None, TokenUsage()
    try:
        for part in _parts(body):
            chunk = _Chunk.model_validate_json(part)
            usage = chunk.usage.counted() if chunk.usage else usage
            for choice in chunk.choices[:1]:
                said = choice.delta or choice.message or _Said()
                text += said.content or ""
                finish_reason = choice.finish_reason or finish_reason
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise EngineFailed(f"the answer is no chat completion{where and f': {where}'}") from None
    if finish_reason is None:
        raise EngineFailed("the answer ended too early")
    return Result({"text": text, "finish_reason": finish_reason}, usage)


def _parts(body: bytes) -> list[bytes]:
    """The data of a stream of events, or the body itself."""
    if body.lstrip().startswith(b"{"):
        return [body]
    data = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
    return [part for part in data if part != b"[DONE]"]


def _error_kind(body: bytes) -> str | None:
    """`error.code` or `error.type` of an OpenAI error object, if it is one word."""
    try:
        error = json.loads(body)["error"]
        words = [error.get("code"), error.get("type")]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return next((w for w in words if isinstance(w, str) and w.isidentifier() and len(w) <= 64), None)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds; a date is not understood, since the server's clock is not ours."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= 3_600 else None
