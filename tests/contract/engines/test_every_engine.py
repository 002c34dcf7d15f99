"""What every engine promises the worker, whatever runs behind it."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psutil
import pytest

from schemas.errors import ErrorCode
from services.worker.domain.engine import (
    CallerFault,
    ContentTooLarge,
    DeadlineExceeded,
    Engine,
    EngineError,
    EngineFailed,
    EngineOverloaded,
    EngineUnavailable,
    Load,
    Measured,
    Outcome,
    Result,
)
from tests.contract.engines import subjects
from tests.contract.engines.kinds import KINDS, Running
from tests.contract.engines.subjects import Subject, Trait, call, until
from tests.scripted_server import Reply

STOPS_WITHIN_S = 1.0
"""What a cancelled call may go on to cost."""


@pytest.fixture
async def subject(name: str, running: Running) -> Subject:
    return await running(name)


Case = Callable[..., Awaitable[None]]
_WANTED: dict[str, Trait] = {}


def only_with(traits: Trait) -> Callable[[Case], Case]:
    """The case is for kinds with these traits; to others it does not apply."""

    def note(case: Case) -> Case:
        _WANTED[case.__name__] = traits
        return case

    return note


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every kind that has the traits which a case wants has to pass it."""
    wanted = _WANTED.get(metafunc.function.__name__, Trait.PLAIN)
    kinds = [pytest.param(name, marks=kind.marks) for name, kind in KINDS.items() if wanted in kind.traits]
    metafunc.parametrize("name", kinds, scope="session")


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Of children, threads, connections and tasks."""
    before = _remains()
    yield

    async def is_so() -> bool:
        return _remains() <= before

    try:
        await until(is_so)
    except AssertionError:
        raise AssertionError(f"left: {_remains() - before}") from None


def _remains() -> set[object]:
    gc.collect()  # gRPC ends a connection with the last reference to it
    process = psutil.Process()
    children = {child.pid for child in process.children(recursive=True)}
    threads = {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}
    open_ones = {c.laddr for c in process.net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED}
    return children | threads | open_ones | asyncio.all_tasks()


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
    value = {"texts": [text], "messages": messages, "call": "shout", "text": text, "TEXT": [text]}
    kept = {key: item for key, item in value.items() if key in subject.good}
    outcome, neighbour = await subject.engine.infer([call(kept or {"question": "Why?"}), call(subject.good)])
    assert isinstance(neighbour, Result)
    assert isinstance(outcome, CallerFault) or not kept


@only_with(Trait.STREAMS)
async def test_the_pieces_of_a_text_joined_are_the_text(subject: Subject) -> None:
    pieces: list[str] = []
    (outcome,) = await subject.engine.infer([call(subject.good, on_text=pieces.append)])
    assert isinstance(outcome, Result), outcome
    assert "".join(pieces) == outcome.output["text"]
    assert len(pieces) > 1
    assert all(pieces)


@only_with(Trait.STREAMS)
async def test_the_first_piece_comes_before_the_end_and_a_cancel_ends_the_tokens(subject: Subject) -> None:
    pieces: asyncio.Queue[str] = asyncio.Queue()
    running = asyncio.create_task(
        subject.engine.infer([call(subject.endless, deadline_s=120, on_text=pieces.put_nowait)])
    )
    async with asyncio.timeout(10):
        await pieces.get()
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    told = pieces.qsize()
    await until(lambda: makes_no_more(subject), timeout_s=STOPS_WITHIN_S)
    assert pieces.qsize() == told


async def makes_no_more(subject: Subject) -> bool:
    """As its server counts, in the time of several tokens."""
    assert subject.made is not None
    before = await subject.made()
    await asyncio.sleep(0.2)
    return await subject.made() == before


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


@only_with(Trait.MEASURED)
async def test_it_tells_what_it_works_on_and_that_it_is_idle(subject: Subject) -> None:
    running = [asyncio.create_task(subject.engine.infer([call(subject.endless, 120)])) for _ in range(subjects.SLOTS)]

    async def runs_all() -> bool:
        return (await load_of(subject))[:2] == (subjects.SLOTS, 0)

    async def says_so() -> bool:
        return (await load_of(subject))[:2] == (0, 0)

    await until(runs_all)
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await until(subject.is_idle, timeout_s=3)
    await until(says_so, every_s=1.5)  # llama.cpp looks after a second without answers whether its clients are there


async def load_of(subject: Subject) -> Load:
    assert isinstance(subject.engine, Measured)
    load = await subject.engine.measure()
    assert load is not None
    return load


async def test_all_slots_answer_at_once(subject: Subject) -> None:
    calls = [subject.engine.infer([call(subject.good)]) for _ in range(subjects.SLOTS)]
    for (outcome,) in await asyncio.gather(*calls):
        assert isinstance(outcome, Result), outcome
        assert subject.is_right(outcome.output)


async def test_it_sleeps_and_wakes_and_both_may_be_repeated(subject: Subject, name: str) -> None:
    await subject.engine.sleep()
    await subject.engine.sleep()
    if Trait.UNLOADS in KINDS[name].traits:
        outcome = await one(subject, subject.good)
        assert isinstance(outcome, EngineUnavailable), outcome
        assert (outcome.code, outcome.retryable, outcome.shed) == (ErrorCode.ENGINE_UNAVAILABLE, True, True)
        with pytest.raises(EngineUnavailable):
            await subject.engine.health()
    await subject.engine.wake()
    await subject.engine.wake()
    await subject.engine.health()
    assert isinstance(await one(subject, subject.good), Result)


async def test_a_stopped_one_leaves_nothing_and_refuses_calls_as_before_its_start(subject: Subject) -> None:
    async with nothing_left():
        engine = subject.new()
        (early,) = await engine.infer([call(subject.good)])
        await engine.start()
        (answer,) = await engine.infer([call(subject.good)])
        await engine.stop()
        await engine.stop()
        (late,) = await engine.infer([call(subject.good)])
    assert isinstance(answer, Result), answer
    assert isinstance(early, EngineUnavailable)
    assert isinstance(late, EngineUnavailable)


async def test_a_start_that_is_cancelled_leaves_nothing(subject: Subject) -> None:
    async with nothing_left():
        await begin_and_cancel(subject.new())


async def begin_and_cancel(engine: Engine) -> None:
    starting = asyncio.create_task(engine.start())
    await asyncio.wait([starting], timeout=0.01)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await engine.stop()


@only_with(Trait.NAMES_A_MODEL)
async def test_an_unknown_model_is_said_at_the_start(subject: Subject) -> None:
    assert subject.unknown is not None
    async with nothing_left():
        engine = subject.unknown()
        with pytest.raises(EngineUnavailable, match="model"):
            await engine.start()
        await engine.stop()


@only_with(Trait.SERVER | Trait.OUTLIVED)
async def test_a_server_that_is_slow_to_begin_is_waited_for(subject: Subject) -> None:
    assert subject.server is not None
    engine = subject.new()
    subject.server.freeze()
    starting = asyncio.create_task(engine.start())
    try:
        done, _ = await asyncio.wait([starting], timeout=0.3)
        assert not done
    finally:
        subject.server.thaw()
    await starting
    (outcome,) = await engine.infer([call(subject.good)])
    await engine.stop()
    assert isinstance(outcome, Result), outcome


@only_with(Trait.SERVER)
async def test_a_server_that_stands_still_is_unhealthy_and_its_calls_are_late(subject: Subject) -> None:
    assert subject.server is not None
    subject.server.freeze()
    try:
        async with asyncio.timeout(3):
            with pytest.raises(EngineUnavailable):
                await subject.engine.health(1.0)
            assert isinstance(await one(subject, subject.good, deadline_s=0.2), DeadlineExceeded)
    finally:
        subject.server.thaw()
    await subject.engine.health()


@only_with(Trait.SERVER)
async def test_a_server_that_is_gone_is_unavailable_until_it_is_back(subject: Subject) -> None:
    assert subject.server is not None
    running = asyncio.create_task(subject.engine.infer([call(subject.endless, deadline_s=120)]))
    await until(lambda: is_busy(subject))
    await subject.server.vanish()
    try:
        (interrupted,) = await running
        for outcome in (interrupted, await one(subject, subject.good)):
            assert isinstance(outcome, EngineUnavailable), outcome
            assert (outcome.retryable, outcome.shed) == (True, True)
        with pytest.raises(EngineUnavailable):
            await subject.engine.health()
    finally:
        await subject.server.come_back()
    await subject.engine.start()
    outcome = await one(subject, subject.good)
    assert isinstance(outcome, Result), outcome
    assert subject.is_right(outcome.output)


@only_with(Trait.SCRIPTED)
async def test_an_answer_that_is_none_fails_the_engine_and_may_be_asked_for_again(subject: Subject) -> None:
    outcome = await answered(subject, Reply(200, b"private"))
    assert isinstance(outcome, EngineFailed), outcome
    assert (outcome.code, outcome.retryable) == (ErrorCode.ENGINE_FAILED, True)
    assert "private" not in str(outcome)


@only_with(Trait.SCRIPTED)
async def test_a_refusal_says_whose_fault_it_is_and_whether_to_try_again_or_less(subject: Subject) -> None:
    wanted: dict[int, tuple[type[EngineError], bool, bool]] = {
        400: (CallerFault, False, False),
        401: (EngineFailed, False, False),
        413: (ContentTooLarge, False, False),
        429: (EngineOverloaded, True, True),
        503: (EngineOverloaded, True, True),
    }
    for status, (kind, retryable, shed) in wanted.items():
        outcome = await answered(subject, Reply(status, b"private"))
        assert type(outcome) is kind
        assert (outcome.retryable, outcome.shed) == (retryable, shed)
        assert "private" not in str(outcome)


async def answered(subject: Subject, reply: Reply) -> Outcome:
    """The outcome of a good call that the server answers so."""
    assert subject.script is not None
    usual, subject.script.reply = subject.script.reply, lambda _: reply
    try:
        return await one(subject, subject.good)
    finally:
        subject.script.reply = usual
