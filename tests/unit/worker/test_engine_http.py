"""The engine of JSON functions against a scripted one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import ValidationError

from schemas import models
from schemas.base import Json
from services.worker.domain.engine import (
    Call,
    CallerFault,
    ContentTooLarge,
    DeadlineExceeded,
    EngineError,
    EngineFailed,
    EngineOverloaded,
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.engines.http import MAX_ANSWER_BYTES, HttpEngine
from tests.scripted_server import ScriptedServer, scripted_server

TOKEN = "Bearer very-secret"
PROBE = {"text": "probe"}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


def configured(port: int, **more: object) -> models.HttpEngine:
    url = f"http://127.0.0.1:{port}/scan?sig=url-secret"
    return models.HttpEngine.model_validate({"kind": "http", "url": url, "health_input": PROBE} | more)


@asynccontextmanager
async def started(server: ScriptedServer, *, healthy: bytes = b"{}", **more: object) -> AsyncIterator[HttpEngine]:
    config = configured(server.port, header_env={"Authorization": "SCAN_TOKEN"}, **more)
    engine = HttpEngine(config, {"Authorization": TOKEN}, by_proxy=False)
    script = server.status, server.headers, server.body, server.hangs
    server.status, server.headers, server.body, server.hangs = 200, {}, healthy, False
    await engine.start()
    server.status, server.headers, server.body, server.hangs = script
    server.asked.clear()
    yield engine
    await engine.stop()


def call(value: Json, deadline_s: float = 5.0) -> Call:
    return Call("r/s#1", "r", "s", 1, "acme", None, value, deadline_s)


async def ask(
    server: ScriptedServer,
    value: Json = None,
    *,
    deadline_s: float = 5.0,
    healthy: bytes = b"{}",
    **more: object,
) -> Outcome:
    async with started(server, healthy=healthy, **more) as engine:
        (outcome,) = await engine.infer([call({"text": "private"} if value is None else value, deadline_s)])
    return outcome


async def test_the_input_is_the_body_and_the_answer_the_output(server: ScriptedServer) -> None:
    server.body = b'{"pages": [1, 2.5, null, "\xc3\xbc"]}'
    outcome = await ask(server, {"text": "grün", "options": {"deep": [True, None]}})
    assert outcome == Result({"pages": [1, 2.5, None, "ü"]})
    (asked,) = server.asked
    assert asked.line == "POST /scan?sig=url-secret HTTP/1.1"
    assert asked.json == {"text": "grün", "options": {"deep": [True, None]}}
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["authorization"] == TOKEN


async def test_every_attempt_of_a_step_has_the_same_idempotency_key(server: ScriptedServer) -> None:
    async with started(server) as engine:
        await engine.infer([call({})._replace(task_id=f"r/s#{n}", attempt=n) for n in (1, 2)])
        await engine.infer([call({})._replace(run_id="q")])
    assert [asked.headers["idempotency-key"] for asked in server.asked] == ["r/s", "r/s", "q/s"]


async def test_the_method_is_the_function_s(server: ScriptedServer) -> None:
    await ask(server, method="PUT")
    assert server.asked[-1].line.startswith("PUT ")


@pytest.mark.parametrize(
    ("pointer", "output"),
    [
        ("", {"data": [{"a/b": 1}, "x"], "~": 2}),
        ("/data", [{"a/b": 1}, "x"]),
        ("/data/1", "x"),
        ("/data/0/a~1b", 1),
        ("/~0", 2),
    ],
)
async def test_the_output_may_be_a_part_of_the_answer(server: ScriptedServer, pointer: str, output: Json) -> None:
    server.body = b'{"data": [{"a/b": 1}, "x"], "~": 2}'
    assert await ask(server, healthy=server.body, output=pointer) == Result(output)


@pytest.mark.parametrize(
    ("pointer", "healthy"),
    [
        ("/none", b'{"none": 1}'),
        ("/data/2", b'{"data": [1, 2, 3]}'),
        ("/data/-1", b'{"data": {"-1": 1}}'),
        ("/data/a", b'{"data": {"a": 1}}'),
        ("/data/1/0", b'{"data": [1, [2]]}'),
    ],
)
async def test_an_answer_without_the_output_fails_the_engine(
    server: ScriptedServer, pointer: str, healthy: bytes
) -> None:
    server.body = b'{"data": [0, "x"]}'
    outcome = await ask(server, healthy=healthy, output=pointer)
    assert isinstance(outcome, EngineFailed)
    assert str(outcome) == f"the answer has no {pointer}"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{"usage": {"in": 7, "out": 3}}', (7, 3)),
        (b'{"usage": {"in": 7}}', (7, 0)),
        (b'{"usage": {"in": -1, "out": true}}', (0, 0)),
        (b"[]", (0, 0)),
    ],
)
async def test_tokens_are_counted_where_the_answer_tells_them(
    server: ScriptedServer, body: bytes, wanted: tuple[int, int]
) -> None:
    server.body = body
    outcome = await ask(server, input_tokens="/usage/in", output_tokens="/usage/out")
    assert isinstance(outcome, Result)
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == wanted


STATUSES: list[tuple[int, type[EngineError], bool, bool]] = [
    (301, EngineFailed, False, False),
    (307, EngineFailed, False, False),
    (400, CallerFault, False, False),
    (401, EngineFailed, False, False),
    (403, EngineFailed, False, False),
    (404, EngineFailed, False, False),
    (408, EngineOverloaded, True, True),
    (413, ContentTooLarge, False, False),
    (422, CallerFault, False, False),
    (429, EngineOverloaded, True, True),
    (500, EngineFailed, True, False),
    (502, EngineOverloaded, True, True),
    (503, EngineOverloaded, True, True),
    (504, EngineOverloaded, True, True),
    (507, EngineFailed, True, False),
]


@pytest.mark.parametrize(("status", "kind", "retryable", "shed"), STATUSES)
async def test_a_status_says_whose_fault_it_is_and_whether_to_try_again(
    server: ScriptedServer, *, status: int, kind: type[EngineError], retryable: bool, shed: bool
) -> None:
    server.status, server.body = status, b'{"error": "private"}'
    server.headers = {"Location": "http://127.0.0.1:1/elsewhere"}
    outcome = await ask(server)
    assert type(outcome) is kind
    assert (outcome.retryable, outcome.shed) == (retryable, shed)
    assert f"answered {status}" in str(outcome)
    for hidden in ("private", "very-secret", "url-secret"):
        assert hidden not in str(outcome)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("meaning", "kind", "retryable", "shed"),
    [
        ("caller_fault", CallerFault, False, False),
        ("too_large", ContentTooLarge, False, False),
        ("fail", EngineFailed, False, False),
        ("retry", EngineFailed, True, False),
        ("shed", EngineOverloaded, True, True),
    ],
)
async def test_a_function_may_mean_something_else_by_a_status(
    server: ScriptedServer, *, meaning: str, kind: type[EngineError], retryable: bool, shed: bool
) -> None:
    server.status = 503 if meaning != "shed" else 404
    outcome = await ask(server, statuses={server.status: meaning})
    assert type(outcome) is kind
    assert (outcome.retryable, outcome.shed) == (retryable, shed)


async def test_a_function_may_say_when_to_come_back(server: ScriptedServer) -> None:
    server.status, server.headers = 503, {"Retry-After": "7"}
    outcome = await ask(server)
    assert isinstance(outcome, EngineUnavailable)
    assert outcome.retry_after_s == 7


@pytest.mark.parametrize("body", [b"", b"private", b"{", b"[NaN]", b'"\\ud800"', b"[" * 10_000, b"\xff"])
async def test_an_answer_that_is_no_json_fails_the_engine(server: ScriptedServer, body: bytes) -> None:
    server.body = body
    outcome = await ask(server)
    assert isinstance(outcome, EngineFailed)
    assert str(outcome) == "the answer is no JSON"


async def test_an_endless_answer_is_cut_off(server: ScriptedServer) -> None:
    server.body = b"[" + b" " * MAX_ANSWER_BYTES
    outcome = await ask(server)
    assert isinstance(outcome, EngineFailed)
    assert not outcome.retryable


@pytest.mark.parametrize("value", [{"text": "\ud800"}, {"x": [float("nan")]}])
async def test_what_json_cannot_carry_never_leaves(server: ScriptedServer, value: Json) -> None:
    outcome = await ask(server, value)
    assert isinstance(outcome, CallerFault)
    assert str(outcome).startswith("input: ")
    assert server.asked == []


async def test_a_call_that_outlasts_its_timeout_may_be_tried_elsewhere(server: ScriptedServer) -> None:
    server.hangs = True
    outcome = await ask(server, timeout="100ms")
    assert isinstance(outcome, EngineUnavailable)
    assert str(outcome).endswith("/scan did not answer within 100 ms")
    await asyncio.wait_for(server.left.wait(), 2)


async def test_a_call_that_outlasts_its_step_is_late(server: ScriptedServer) -> None:
    server.hangs = True
    assert isinstance(await ask(server, deadline_s=0.1, timeout="1m"), DeadlineExceeded)
    await asyncio.wait_for(server.left.wait(), 2)


async def test_health_is_a_call_with_the_input_that_was_written_for_it(server: ScriptedServer) -> None:
    async with started(server) as engine:
        await engine.health()
        assert server.asked[-1].json == PROBE
        server.status = 422
        with pytest.raises(EngineUnavailable, match=r"the health check failed: input: .* answered 422"):
            await engine.health()


async def test_a_missing_variable_is_said_before_anything_is_sent(server: ScriptedServer) -> None:
    engine = HttpEngine(configured(server.port, header_env={"X-Key": "SCAN_KEY"}), {"X-Key": None})
    with pytest.raises(EngineUnavailable, match="set the environment variable SCAN_KEY"):
        await engine.start()
    assert server.asked == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://user:password@functions.example/scan"},
        {"url": "ftp://functions.example/scan"},
        {"header_env": {"X-Key": "sk-very-secret"}},
        {"header_env": {"X Key": "SCAN_KEY"}},
        {"output": "data"},
        {"statuses": {200: "retry"}},
        {"health_input": None},
    ],
)
def test_a_configuration_that_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        configured(1, **wrong)


def test_a_configuration_survives_its_way_over_the_log() -> None:
    config = configured(1, statuses={404: "caller_fault"}, timeout="2s")
    assert models.HttpEngine.model_validate(json.loads(config.model_dump_json())) == config
