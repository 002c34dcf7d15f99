"""What only an engine has to promise whose model vLLM runs."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import psutil
import pytest

from schemas.base import Json, Priority
from schemas.models import BreakerRules
from services.chassis.clock import LogClock
from services.worker.circuit import Circuit
from services.worker.domain.engine import CallerFault, EngineUnavailable, Outcome, Result
from services.worker.engine_life import EngineLife, EngineLostError
from services.worker.engines.vllm import VllmEngine
from tests.contract.engines.kinds import IN_VLLMS_ENVIRONMENT, Running
from tests.contract.engines.subjects import SLOTS, Input, Subject, call, until

pytestmark = list(IN_VLLMS_ENVIRONMENT)

BLOCK = 128
"""Tokens that the KV cache of a CPU keeps together."""


@pytest.fixture
async def subject(running: Running) -> Subject:
    return await running("vllm")


@pytest.fixture
def engine(subject: Subject) -> VllmEngine:
    assert isinstance(subject.engine, VllmEngine)
    return subject.engine


async def ask(engine: VllmEngine, value: Input, priority: Priority = Priority.STANDARD) -> Outcome:
    (outcome,) = await engine.infer([call(value)._replace(priority=priority)])
    return outcome


def chat(text: str, **more: Json) -> Input:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}


async def test_prompts_that_begin_alike_share_their_beginning(engine: VllmEngine) -> None:
    context = "The same long context. " * 20
    first, second = [await ask(engine, chat(context + question)) for question in ("Why?", "How?")]
    assert isinstance(first, Result)
    assert isinstance(second, Result)
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == len(context) // BLOCK * BLOCK


async def test_tokens_are_counted(engine: VllmEngine) -> None:
    outcome = await ask(engine, chat("12345"))
    assert isinstance(outcome, Result)
    template = len("user: \nassistant: ") + 1  # a token a byte, and one that begins it
    assert outcome.usage.input_tokens == template + 5
    assert outcome.usage.output_tokens == 4
    assert outcome.output["finish_reason"] == "length"


async def test_a_prompt_that_fits_has_an_answer_as_long_as_the_context_has_room_for(engine: VllmEngine) -> None:
    outcome = await ask(engine, chat("a" * 2_000, max_tokens=4_096))
    assert isinstance(outcome, Result), outcome
    assert outcome.usage.input_tokens + outcome.usage.output_tokens <= 2_048


async def test_a_schema_that_cannot_be_kept_to_is_the_callers_fault(engine: VllmEngine) -> None:
    wrong: Json = {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}
    outcome = await ask(engine, chat("Hi", response_format=wrong))
    assert isinstance(outcome, CallerFault)
    assert str(outcome).startswith("input.response_format")
    assert "nonsense" not in str(outcome)


async def test_a_stop_ends_an_answer(engine: VllmEngine) -> None:
    listed: Json = {"type": "json_schema", "json_schema": {"schema": {"enum": ["one, two"]}}}
    outcome = await ask(engine, chat("Count.", response_format=listed, max_tokens=40, stop=","))
    assert isinstance(outcome, Result)
    assert outcome.output == {"text": '"one', "finish_reason": "stop"}


async def test_of_calls_that_wait_those_of_the_first_lane_go_first(subject: Subject, engine: VllmEngine) -> None:
    busy = [asyncio.create_task(engine.infer([call(subject.endless, 120)])) for _ in range(SLOTS + 1)]
    ended: list[Priority] = []

    async def answered(lane: Priority) -> None:
        assert isinstance(await ask(engine, subject.good, lane), Result)
        ended.append(lane)

    lanes = (Priority.BATCH, Priority.STANDARD, Priority.INTERACTIVE)
    waiting = [asyncio.create_task(answered(lane)) for lane in lanes]

    async def all_wait() -> bool:
        load = await engine.measure()
        return load is not None and load[:2] == (SLOTS + 1, len(lanes))

    await until(all_wait)
    busy.pop().cancel()
    await asyncio.gather(*waiting)
    for each in busy:
        each.cancel()
    assert ended == [Priority.INTERACTIVE, Priority.STANDARD, Priority.BATCH]
    await until(subject.is_idle)


async def test_vllms_processes_die_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.contract.engines.vllm_victim", tmp_path, stdout=PIPE
    )
    assert victim.stdout is not None
    try:
        while not (line := await victim.stdout.readline()).startswith(b"core"):
            assert line, "it ended before it answered"
        core = psutil.Process(int(line.split()[1]))
        processes = [core, *core.children(recursive=True)]
        assert len(processes) > 1
    finally:
        victim.kill()
        await victim.wait()

    async def are_gone() -> bool:
        return not any(process.is_running() for process in processes)

    await until(are_gone, timeout_s=10)


async def test_an_engine_whose_core_has_died_ends_its_worker(subject: Subject, engine: VllmEngine) -> None:
    """The last test here: the engine is gone with it."""
    assert subject.server is not None
    clock = LogClock()
    clock.observe(1)
    life = EngineLife("llm", engine, clock, Circuit(BreakerRules(), lambda: 0.0), on_started=lambda *_: None)
    await life.start()
    watch = asyncio.create_task(life.watch())
    running = asyncio.create_task(engine.infer([call(subject.endless, 120)]))
    await until(lambda: is_busy(subject))
    await subject.server.vanish()
    (interrupted,) = await running
    assert isinstance(interrupted, EngineUnavailable)
    assert interrupted.retryable, "another worker has it next"
    life.suspect(None)
    async with asyncio.timeout(10):
        with pytest.raises(EngineLostError, match="vLLM has ended"):
            await watch
    assert life.state == "failed"


async def is_busy(subject: Subject) -> bool:
    return not await subject.is_idle()
