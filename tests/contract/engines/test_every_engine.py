"""What every engine promises the worker, whatever runs behind it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from schemas.errors import ErrorCode
from services.worker.domain.engine import (
    CallerFault,
    ContentTooLarge,
    DeadlineExceeded,
    EngineUnavailable,
    Outcome,
    Result,
)
from tests.contract.engines import subjects
from tests.contract.engines.subjects import Subject, call, until


@pytest.fixture(scope="session")
async def onnx() -> AsyncIterator[Subject]:
    async with subjects.onnx() as subject:
        yield subject


@pytest.fixture(scope="session")
async def llamacpp() -> AsyncIterator[Subject]:
    async with subjects.llamacpp() as subject:
        yield subject


@pytest.fixture(scope="session")
async def openai(llamacpp: Subject) -> AsyncIterator[Subject]:
    async with subjects.openai(llamacpp) as subject:
        yield subject


@pytest.fixture(scope="session")
async def function() -> AsyncIterator[Subject]:
    async with subjects.function("shout") as subject:
        yield subject


@pytest.fixture(scope="session")
async def function_in_a_thread() -> AsyncIterator[Subject]:
    async with subjects.function("shout_in_a_thread") as subject:
        yield subject


@pytest.fixture(scope="session")
async def simulated() -> AsyncIterator[Subject]:
    async with subjects.simulated() as subject:
        yield subject


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("onnx", marks=pytest.mark.models),
        pytest.param("openai", marks=pytest.mark.models),  # before llamacpp restarts its server in another place
        pytest.param("llamacpp", marks=pytest.mark.models),
        "function",
        "function_in_a_thread",
        "simulated",
    ],
)
def subject(request: pytest.FixtureRequest) -> Subject:
    """One engine of each kind for the whole run."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Subject)
    return found


async def one(subject: Subject, value: subjects.Input, deadline_s: float = 30.0) -> Outcome:
    (outcome,) = await subject.engine.infer([call(value, deadline_s)])
    return outcome


async def is_busy(subject: Subject) -> bool:
    return not await subject.is_idle()


async def test_a_started_engine_is_healthy(subject: Subject) -> None:
    await subject.engine.start()
    await subject.engine.health()


async def test_a_call_is_answered_and_its_tokens_counted(subject: Subject) -> None:
    outcome = await one(subject, subject.good)
    assert isinstance(outcome, Result), outcome
    assert subject.is_right(outcome.output)
    assert (outcome.usage.input_tokens > 0) == subject.counts_input
    assert (outcome.usage.output_tokens > 0) == subject.counts_output


async def test_the_same_call_has_the_same_answer(subject: Subject) -> None:
    first, second = await one(subject, subject.good), await one(subject, subject.good)
    assert isinstance(first, Result)
    assert isinstance(second, Result)
    assert first.output == second.output


async def test_a_bad_call_does_not_fail_its_neighbours(subject: Subject) -> None:
    values = (subject.good, subject.malformed, subject.good)
    first, bad, last = await subject.engine.infer([call(value) for value in values])
    assert isinstance(first, Result)
    assert isinstance(last, Result)
    assert subject.is_right(first.output)
    assert subject.is_right(last.output)
    assert isinstance(bad, CallerFault)


async def test_a_malformed_input_is_a_fault_that_names_the_field(subject: Subject) -> None:
    outcome = await one(subject, subject.malformed)
    assert isinstance(outcome, CallerFault)
    assert (outcome.code, outcome.retryable, outcome.shed) == (ErrorCode.INVALID_INPUT, False, False)
    assert str(outcome).startswith(subject.wrong_field)


async def test_an_input_that_is_too_long_is_refused_not_cut(subject: Subject) -> None:
    outcome = await one(subject, subject.too_long)
    assert isinstance(outcome, ContentTooLarge), outcome
    assert (outcome.code, outcome.retryable) == (ErrorCode.CONTENT_TOO_LARGE, False)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
async def test_a_lone_surrogate_fails_its_call_alone(subject: Subject, text: str) -> None:
    """It is legal in JSON text and in a Python string, and nowhere else."""
    messages = [{"role": "user", "content": text}]
    value = {"texts": [text], "messages": messages, "call": "shout", "text": text}
    kept = {key: item for key, item in value.items() if key in subject.good}
    outcome, neighbour = await subject.engine.infer([call(kept or {"question": "Why?"}), call(subject.good)])
    assert isinstance(neighbour, Result)
    assert isinstance(outcome, CallerFault) or not kept


async def test_cancelling_a_call_stops_its_work(subject: Subject) -> None:
    task = asyncio.create_task(subject.engine.infer([call(subject.endless, deadline_s=120)]))
    await until(lambda: is_busy(subject))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(subject.is_idle, timeout_s=3)


async def test_a_deadline_stops_the_work(subject: Subject) -> None:
    outcome = await one(subject, subject.endless, deadline_s=0.4)
    assert isinstance(outcome, DeadlineExceeded), outcome
    assert (outcome.code, outcome.retryable) == (ErrorCode.DEADLINE_EXCEEDED, False)
    await until(subject.is_idle, timeout_s=3)


async def test_a_call_whose_time_is_up_is_not_answered(subject: Subject) -> None:
    assert isinstance(await one(subject, subject.endless, deadline_s=0), DeadlineExceeded)


async def test_health_does_not_wait_behind_busy_slots(subject: Subject) -> None:
    calls = [call(subject.endless, deadline_s=120) for _ in range(subjects.SLOTS)]
    tasks = [asyncio.create_task(subject.engine.infer([one])) for one in calls]
    await until(lambda: is_busy(subject))
    await subject.engine.health()
    for task in tasks:
        assert not task.done()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(subject.is_idle, timeout_s=3)


async def test_it_sleeps_and_wakes_and_both_may_be_repeated(subject: Subject) -> None:
    await subject.engine.sleep()
    await subject.engine.sleep()
    if subject.refuses_asleep:
        outcome = await one(subject, subject.good)
        assert isinstance(outcome, EngineUnavailable), outcome
        assert (outcome.code, outcome.retryable, outcome.shed) == (ErrorCode.ENGINE_UNAVAILABLE, True, True)
        with pytest.raises(EngineUnavailable):
            await subject.engine.health()
    await subject.engine.wake()
    await subject.engine.wake()
    await subject.engine.health()
    assert isinstance(await one(subject, subject.good), Result)
