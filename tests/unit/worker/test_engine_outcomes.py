import asyncio

import pytest
from pydantic import BaseModel, Field

from schemas.errors import ErrorCode
from services.worker.domain.engine import (
    Call,
    CallerFault,
    ContentTooLarge,
    DeadlineExceeded,
    EngineError,
    EngineFailed,
    EngineUnavailable,
    Result,
)
from services.worker.engines.outcomes import answer_each, read_input, require_result


def call(name: str, deadline_s: float = 5.0) -> Call:
    return Call(f"{name}/step#1", name, "step", 1, "acme", None, {"name": name}, deadline_s)


class Point(BaseModel):
    x: int
    y: int = 0
    label: str = Field(default="", max_length=3)
    tags: list[str] = Field(default=[], max_length=1)


def test_an_input_is_read_as_its_model() -> None:
    assert read_input(Point, {"x": 1}) == Point(x=1)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "input.x: Field required"),
        ({"x": 1, "tags": [7]}, "input.tags.0: Input should be a valid string"),
        ({"x": 1, "label": "\ud800"}, "input.label: Input should be a valid string"),
        ([], "input: Input should be a valid dictionary"),
        (None, "input: Input should be a valid dictionary"),
    ],
)
def test_a_fault_names_the_field(value: object, says: str) -> None:
    with pytest.raises(CallerFault) as caught:
        read_input(Point, value)
    assert str(caught.value).startswith(says)
    assert caught.value.code == ErrorCode.INVALID_INPUT


def test_a_fault_never_quotes_the_input() -> None:
    with pytest.raises(CallerFault) as caught:
        read_input(Point, {"x": "the secret", "y": "of a prompt"})
    assert "secret" not in str(caught.value)
    assert "prompt" not in str(caught.value)


@pytest.mark.parametrize("value", [{"x": 1, "label": "long"}, {"x": 1, "tags": ["a", "b"]}])
def test_what_is_too_long_has_a_code_of_its_own(value: object) -> None:
    with pytest.raises(ContentTooLarge) as caught:
        read_input(Point, value)
    assert caught.value.code == ErrorCode.CONTENT_TOO_LARGE


def test_many_faults_are_counted_not_listed() -> None:
    with pytest.raises(CallerFault, match="and 1 more"):
        read_input(Point, {"x": "a", "y": "b", "label": 1, "tags": 2})


async def test_all_calls_are_answered_at_the_same_time_and_in_order() -> None:
    together = asyncio.Barrier(3)

    async def answer(call: Call) -> Result:
        await together.wait()
        return Result(call.run_id)

    outcomes = await answer_each([call("a"), call("b"), call("c")], answer)
    assert outcomes == [Result("a"), Result("b"), Result("c")]


@pytest.mark.parametrize("error", [CallerFault("no"), EngineUnavailable("no"), EngineFailed("no")])
async def test_an_engine_error_is_an_outcome(error: EngineError) -> None:
    async def answer(call: Call) -> Result:
        if call.run_id == "bad":
            raise error
        return Result(call.run_id)

    assert await answer_each([call("bad"), call("good")], answer) == [error, Result("good")]


@pytest.mark.parametrize(
    "error", [KeyError("secret"), SystemExit("secret"), asyncio.CancelledError("secret"), TimeoutError("secret")]
)
async def test_an_unexpected_exception_fails_its_call_and_keeps_its_text(error: BaseException) -> None:
    async def answer(call: Call) -> Result:
        if call.run_id == "bad":
            raise error
        return Result(call.run_id)

    bad, good = await answer_each([call("bad"), call("good")], answer)
    assert isinstance(bad, EngineFailed)
    assert bad.retryable
    assert "secret" not in str(bad)
    assert good == Result("good")


async def test_an_unexpected_exception_is_named_with_its_place() -> None:
    async def answer(call: Call) -> Result:
        return Result(call.input["secret"])

    (bad,) = await answer_each([call("bad")], answer)
    assert str(bad).startswith("KeyError at test_engine_outcomes.py:")


async def test_each_call_has_its_own_deadline() -> None:
    async def answer(call: Call) -> Result:
        await asyncio.sleep(0.05)
        return Result(call.run_id)

    late, early = await answer_each([call("late", deadline_s=0.01), call("early")], answer)
    assert isinstance(late, DeadlineExceeded)
    assert early == Result("early")


async def test_cancelling_cancels_every_call() -> None:
    begun, ended = asyncio.Barrier(3), []

    async def answer(call: Call) -> Result:
        try:
            await begun.wait()
            await asyncio.Event().wait()
        finally:
            ended.append(call.run_id)
        return Result(None)

    task = asyncio.create_task(answer_each([call("a"), call("b")], answer))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == ["a", "b"]


def test_only_a_result_is_healthy() -> None:
    require_result([Result("fine")])
    with pytest.raises(EngineUnavailable, match="the health check failed: broken"):
        require_result([EngineFailed("broken")])


def test_the_classes_of_errors_say_what_to_do() -> None:
    """Retry it? Send the engine less?"""
    errors = [CallerFault(""), ContentTooLarge(""), DeadlineExceeded(""), EngineUnavailable(""), EngineFailed("")]
    assert [error.retryable for error in errors] == [False, False, False, True, True]
    assert [error.shed for error in errors] == [False, False, False, True, False]
    assert not EngineFailed("", retryable=False).retryable
    assert EngineUnavailable("", retry_after_s=3).retry_after_s == 3
