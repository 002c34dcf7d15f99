"""The client of OpenAI-compatible servers against a scripted one: everything a real server rarely says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from schemas.errors import ErrorCode
from services.worker.domain.engine import (
    Call,
    CallerFault,
    ContentTooLarge,
    DeadlineExceeded,
    EngineFailed,
    EngineOverloaded,
    EngineUnavailable,
    Load,
    Outcome,
    Result,
)
from services.worker.engines.chat_answer import ChatAnswer
from services.worker.engines.openai import MAX_ANSWER_BYTES, OpenAIEngine
from tests.scripted_server import ScriptedServer, scripted_server

KEY = "sk-very-secret"
HELLO = {"messages": [{"role": "user", "content": "hello, this is private"}]}


def whole(text: str | None = "hi", **more: object) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], **more}).encode()


def streamed(*chunks: object) -> bytes:
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([": ping\n\n", *lines, "data: [DONE]\n\n"]).encode()


def delta(text: str | None, finish_reason: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}]}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server(whole()) as server:
        yield server


@asynccontextmanager
async def started(server: ScriptedServer, api_key: str | None = KEY) -> AsyncIterator[OpenAIEngine]:
    engine = OpenAIEngine(
        f"http://127.0.0.1:{server.port}/v1/",
        "small",
        api_key=api_key,
        api_key_env=api_key and "LLM_KEY",
        by_proxy=False,
    )
    script = server.status, server.headers, server.body, server.hangs
    server.status, server.headers, server.body, server.hangs = 200, {}, whole(), False
    await engine.start()
    server.status, server.headers, server.body, server.hangs = script
    server.asked.clear()
    yield engine
    await engine.stop()


async def ask(server: ScriptedServer, value: object = None, deadline_s: float = 5.0) -> Outcome:
    async with started(server) as engine:
        call = Call("r/s#1", "r", "s", 1, "acme", None, HELLO if value is None else value, deadline_s)  # type: ignore[arg-type]
        (outcome,) = await engine.infer([call])
    return outcome


async def test_a_whole_answer_is_read(server: ScriptedServer) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    server.body = whole("hi", usage=usage, service_tier="x")
    outcome = await ask(server)
    assert isinstance(outcome, Result)
    assert outcome.output == {"text": "hi", "finish_reason": "stop"}
    assert outcome.usage.model_dump() == {"input_tokens": 9, "cached_tokens": 4, "output_tokens": 3}


async def test_a_streamed_answer_is_put_together(server: ScriptedServer) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    server.body = streamed(delta(None), delta("Grüß"), delta(" dich"), delta(None, "length"), usage)
    outcome = await ask(server)
    assert isinstance(outcome, Result)
    assert outcome.output == {"text": "Grüß dich", "finish_reason": "length"}
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (9, 2)


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_each_piece_is_told_as_it_comes_wherever_the_bytes_are_cut(size: int, end: str) -> None:
    body = streamed(delta(""), delta("Grüß"), delta(" dich\n"), delta(None, "stop")).rstrip() + end.encode()
    pieces: list[str] = []
    answer = ChatAnswer(pieces.append)
    for at in range(0, len(body), size):
        answer.feed(body[at : at + size])
    assert answer.result(body).output == {"text": "Grüß dich\n", "finish_reason": "stop"}
    assert pieces == ["Grüß", " dich\n"]


def test_a_piece_does_not_wait_for_the_next() -> None:
    pieces: list[str] = []
    answer = ChatAnswer(pieces.append)
    answer.feed(streamed(delta("one")).removesuffix(b"data: [DONE]\n\n"))
    assert pieces == ["one"]


async def test_of_a_server_that_does_not_stream_the_text_is_one_piece(server: ScriptedServer) -> None:
    pieces: list[str] = []
    async with started(server) as engine:
        await engine.infer([Call("r/s#1", "r", "s", 1, "acme", None, HELLO, 5, on_text=pieces.append)])
    assert pieces == ["hi"]


async def test_an_answer_without_content_or_usage_is_empty(server: ScriptedServer) -> None:
    server.body = whole(None)
    outcome = await ask(server)
    assert outcome == Result({"text": "", "finish_reason": "stop"})


async def test_the_request_is_bounded_repeatable_and_carries_the_key(server: ScriptedServer) -> None:
    await ask(server)
    (asked,) = server.asked
    assert asked.line == "POST /v1/chat/completions HTTP/1.1"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.json == HELLO | {
        "model": "small",
        "max_tokens": 256,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_what_a_pipeline_may_set_is_passed_on(server: ScriptedServer) -> None:
    chosen = {"max_tokens": 7, "temperature": 0.5, "stop": "END", "response_format": {"type": "json_object"}}
    await ask(server, HELLO | chosen)
    assert server.asked[-1].json.items() >= (chosen | {"stop": ["END"]}).items()


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"api_base": "http://evil.example"}, "input.api_base"),
        ({"model": "other"}, "input.model"),
        ({"n": 100}, "input.n"),
        ({"stream": False}, "input.stream"),
        ({"max_tokens": 5_000}, "input.max_tokens"),
        ({"max_tokens": 0}, "input.max_tokens"),
        ({"temperature": float("nan")}, "input.temperature"),
        ({"messages": []}, "input.messages"),
        ({"messages": [{"role": "root", "content": "x"}]}, "input.messages.0.role"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "input.messages.0.content"),
        ({"messages": "hi"}, "input.messages"),
        ({"response_format": {"json_schema": "x" * 20_000}}, "input.response_format"),
    ],
)
async def test_an_input_outside_the_allow_list_never_leaves(
    server: ScriptedServer, more: dict[str, object], names: str
) -> None:
    outcome = await ask(server, HELLO | more)
    assert isinstance(outcome, CallerFault)
    assert str(outcome).startswith(names)
    assert server.asked == []


def error(kind: str | None = None, **more: object) -> bytes:
    return json.dumps({"error": {"message": "hello, this is private", "code": kind, **more}}).encode()


TOO_LONG_FOR_VLLM = json.dumps({
    "error": {
        "message": "This model's maximum context length is 2048 tokens. However, your request has 4000 input tokens.",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    }
}).encode()  # fmt: skip

STATUSES: list[tuple[int, bytes, type, bool, str]] = [
    (400, error("bad_thing"), CallerFault, False, "bad_thing"),
    (400, error(None, type="invalid_request_error"), CallerFault, False, "invalid_request_error"),
    (422, b"[]", CallerFault, False, "422"),
    (400, error("BadRequestError"), CallerFault, False, "BadRequestError"),
    (400, TOO_LONG_FOR_VLLM, ContentTooLarge, False, "input.messages: longer"),
    (400, error("context_length_exceeded"), ContentTooLarge, False, "input.messages: longer"),
    (400, error(None, type="exceed_context_size_error"), ContentTooLarge, False, "input.messages: longer"),
    (413, b"too big", ContentTooLarge, False, "input.messages: longer"),
    (401, error("invalid_api_key"), EngineFailed, False, "check LLM_KEY"),
    (403, error(), EngineFailed, False, "check LLM_KEY"),
    (404, error("model_not_found"), EngineFailed, False, "check base_url"),
    (307, b"", EngineFailed, False, "check base_url"),
    (408, b"", EngineUnavailable, True, "408"),
    (429, error("rate_limit"), EngineOverloaded, True, "rate_limit"),
    (429, error("insufficient_quota"), EngineFailed, False, "no credit left"),
    (500, b"<html>hello, this is private</html>", EngineUnavailable, True, "500"),
    (503, error("a sentence, this is private"), EngineOverloaded, True, "503"),
]


@pytest.mark.parametrize(("status", "body", "kind", "retryable", "says"), STATUSES)
async def test_a_status_becomes_the_error_that_says_what_to_do(
    server: ScriptedServer, *, status: int, body: bytes, kind: type, retryable: bool, says: str
) -> None:
    server.status, server.body, server.headers = status, body, {"Location": "http://127.0.0.1:1/elsewhere"}
    outcome = await ask(server)
    assert type(outcome) is kind
    assert isinstance(outcome, EngineFailed | EngineUnavailable | CallerFault)
    assert outcome.retryable is retryable
    assert says in str(outcome)
    assert "private" not in str(outcome)
    assert KEY not in str(outcome)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-1", None),
        ("nan", None),
        ("99999", None),
        ("Mon, 01", None),
        ("Wed, 21 Oct 2015 07:28:09 GMT", 9.0),  # by the server's clock, which its `Date` tells
        ("Wed, 21 Oct 2015 07:27:00 GMT", None),
    ],
)
async def test_a_server_may_say_when_to_come_back(server: ScriptedServer, said: str, wanted: float | None) -> None:
    server.status, server.headers = 429, {"Retry-After": said, "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}
    outcome = await ask(server)
    assert isinstance(outcome, EngineUnavailable)
    assert outcome.shed
    assert outcome.retry_after_s == wanted


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"private",
        b"{}",
        b'{"choices": 7}',
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": ["private"]}, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": "cut',
        streamed(delta("no end")),
        streamed({"error": {"message": "private"}}),
        b'data: {"choices": [{"delta": {"content": "cut',
    ],
)
async def test_an_answer_that_is_none_fails_the_engine(server: ScriptedServer, body: bytes) -> None:
    server.body = body
    outcome = await ask(server)
    assert isinstance(outcome, EngineFailed)
    assert outcome.retryable
    assert "private" not in str(outcome)


async def test_an_endless_answer_is_cut_off(server: ScriptedServer) -> None:
    server.body = b"data: " + b"x" * (MAX_ANSWER_BYTES + 1)
    outcome = await ask(server)
    assert isinstance(outcome, EngineFailed)
    assert not outcome.retryable


async def test_a_compressed_answer_is_not_blown_up(server: ScriptedServer) -> None:
    """A hundred bytes of it could be a gigabyte; none was asked for."""
    server.headers, server.body = {"Content-Encoding": "gzip"}, b"\x1f\x8b\x08" + bytes(100)
    assert isinstance(await ask(server), EngineFailed)
    assert server.asked[-1].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/llm/v1", "/llm"])
async def test_its_load_is_on_the_page_of_metrics_beside_the_protocol(server: ScriptedServer, path: str) -> None:
    engine = OpenAIEngine(f"http://127.0.0.1:{server.port}{path}", "small", api_key=KEY, by_proxy=False)
    await engine.start()
    server.asked.clear()
    server.body = b"vllm:num_requests_running 3.0\nvllm:num_requests_waiting 1.0\n"
    assert await engine.measure() == Load(3, 1)
    await engine.stop()
    (asked,) = server.asked
    assert asked.line == f"GET {path.removesuffix('/').removesuffix('/v1')}/metrics HTTP/1.1"
    assert asked.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [200, 401, 404, 307])
async def test_of_a_server_that_has_no_such_page_no_load_is_known(server: ScriptedServer, status: int) -> None:
    async with started(server) as engine:
        server.status, server.body = status, b"<html>"
        assert await engine.measure() is None


async def test_a_server_that_is_gone_has_no_page_either() -> None:
    async with scripted_server(whole()) as server, started(server) as engine:
        await server.close()
        with pytest.raises(EngineUnavailable):
            await engine.measure()
        await server.open()


async def test_a_deadline_ends_the_call_and_the_connection(server: ScriptedServer) -> None:
    server.hangs = True
    outcome = await ask(server, deadline_s=0.2)
    assert isinstance(outcome, DeadlineExceeded)
    assert outcome.code == ErrorCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(server.left.wait(), 2)


async def test_cancelling_ends_the_connection(server: ScriptedServer) -> None:
    server.hangs = True
    async with started(server) as engine:
        task = asyncio.create_task(engine.infer([Call("r/s#1", "r", "s", 1, "acme", None, HELLO, 60)]))
        await asyncio.wait_for(server.came.wait(), 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 2)


async def test_a_server_that_is_gone_is_unavailable() -> None:
    engine = OpenAIEngine("http://127.0.0.1:1/v1", "small", by_proxy=False)
    with pytest.raises(EngineUnavailable, match="ConnectError at http://127"):
        await engine.start()
    await engine.stop()


async def test_a_missing_key_is_said_before_anything_is_sent(server: ScriptedServer) -> None:
    engine = OpenAIEngine(f"http://127.0.0.1:{server.port}/v1", "small", api_key_env="LLM_KEY")
    with pytest.raises(EngineUnavailable, match="set the environment variable LLM_KEY"):
        await engine.start()
    assert server.asked == []


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-sécret"])
async def test_a_key_that_no_header_can_carry_is_said_without_it(server: ScriptedServer, key: str) -> None:
    engine = OpenAIEngine("http://127.0.0.1:1/v1", "small", api_key=key, api_key_env="LLM_KEY")
    with pytest.raises(EngineUnavailable, match="LLM_KEY holds characters") as caught:
        await engine.start()
    assert "cret" not in str(caught.value)


async def test_without_a_key_no_header_is_sent(server: ScriptedServer) -> None:
    async with started(server, api_key=None) as engine:
        await engine.health()
    assert "authorization" not in server.asked[-1].headers


async def test_it_refuses_calls_before_its_start_and_after_its_end(server: ScriptedServer) -> None:
    async with started(server) as engine:
        pass
    for idle in (engine, OpenAIEngine("http://127.0.0.1:1/v1", "small")):
        (outcome,) = await idle.infer([Call("r/s#1", "r", "s", 1, "acme", None, HELLO, 5)])
        assert isinstance(outcome, EngineUnavailable)
