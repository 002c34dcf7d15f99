"""What only an engine with a child process has to promise."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psutil
import pytest

from services.worker.domain.engine import EngineUnavailable, Load, Result
from services.worker.engines.llamacpp import LlamaCppEngine
from tests.contract.engines.subjects import LONG_LIST, call, until

pytestmark = pytest.mark.models

ROOT = Path(__file__).parents[3]

ENDLESS = {"max_tokens": 900, "response_format": {"type": "json_schema", "json_schema": {"schema": LONG_LIST}}}
HELLO = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}


def new_engine(model: str = "smollm2-135m") -> LlamaCppEngine:
    return LlamaCppEngine(model, slots=1, context=1_024, threads=1)


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[LlamaCppEngine]:
    engine = new_engine()
    yield engine
    await engine.stop()


@pytest.fixture
async def engine(shared: LlamaCppEngine) -> LlamaCppEngine:
    """Alive, whatever the test before did to its child."""
    await shared.start()
    return shared


def child_of(engine: LlamaCppEngine) -> psutil.Process:
    assert engine._server is not None
    return psutil.Process(engine._server.pid)


def servers() -> list[int]:
    return [child.pid for child in psutil.Process().children() if "llamacpp_server" in " ".join(child.cmdline())]


async def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def kill_child(engine: LlamaCppEngine) -> None:
    assert engine._server is not None
    engine._server.kill()
    await engine._server.wait()


async def test_the_child_dies_with_its_parent_even_by_kill_9() -> None:
    program = (
        "import asyncio\n"
        "from tests.contract.engines.test_llamacpp import child_of, new_engine\n"
        "async def main():\n"
        "    engine = new_engine()\n"
        "    await engine.start()\n"
        "    print(child_of(engine).pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=ROOT, stdout=PIPE)
    assert parent.stdout is not None
    pid = int(await asyncio.wait_for(parent.stdout.readline(), 60))
    assert psutil.pid_exists(pid)
    os.kill(parent.pid, signal.SIGKILL)
    await parent.wait()
    await until(lambda: is_gone(pid))


async def test_a_start_that_is_cancelled_leaves_no_child() -> None:
    before = servers()
    task = asyncio.create_task(new_engine().start())

    async def has_a_child() -> bool:
        return len(servers()) > len(before)

    await until(has_a_child)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert servers() == before


async def test_the_server_listens_to_this_host_alone_and_asks_for_the_key(engine: LlamaCppEngine) -> None:
    (listening,) = (c for c in child_of(engine).net_connections() if c.status == psutil.CONN_LISTEN)
    assert listening.laddr.ip == "127.0.0.1"
    async with httpx.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{listening.laddr.port}") as client:
        assert (await client.get("/slots")).status_code == 401
        assert (await client.post("/v1/chat/completions", json=HELLO)).status_code == 401


async def test_a_repeated_prompt_comes_from_the_prefix_cache(engine: LlamaCppEngine) -> None:
    async def is_cached() -> bool:
        """Not always at once: the slot that knows the prompt is free a moment after its answer."""
        (outcome,) = await engine.infer([call(HELLO)])
        assert isinstance(outcome, Result)
        assert outcome.usage.cached_tokens <= outcome.usage.input_tokens
        return outcome.usage.cached_tokens > 0

    await until(is_cached)


async def test_a_response_format_is_kept_to(engine: LlamaCppEngine) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}
    wanted = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}
    (outcome,) = await engine.infer([call(HELLO | wanted | {"max_tokens": 32})])
    assert isinstance(outcome, Result)
    assert isinstance(json.loads(outcome.output["text"])["n"], int)


async def test_what_its_slots_cannot_take_waits_inside_and_is_told(engine: LlamaCppEngine) -> None:
    calls = [asyncio.create_task(engine.infer([call(HELLO | ENDLESS, deadline_s=60)])) for _ in range(5)]

    async def are_all_there() -> bool:
        return await engine.measure() == Load(running=2, waiting=3)

    await until(are_all_there)
    for each in calls:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize(
    ("model", "says"),
    [("gpt-9", "smollm2-135m or the path of a .gguf file"), ("/nowhere/model.gguf", "there is no file")],
)
async def test_a_model_that_is_not_there_is_said_so(model: str, says: str) -> None:
    with pytest.raises(EngineUnavailable, match=says):
        await new_engine(model).start()


async def test_a_file_that_is_no_model_is_said_so_and_leaves_no_child(tmp_path: Path) -> None:
    before = servers()
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF, or so it says")
    with pytest.raises(EngineUnavailable, match=f"while loading {path}"):
        await new_engine(str(path)).start()
    assert servers() == before
