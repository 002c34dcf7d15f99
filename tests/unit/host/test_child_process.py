"""A worker process is asked through its side door, and nothing it answers can harm the host."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schemas.models import ModelsFile, Queue, queues
from services.host.adapters import child_process
from services.host.adapters.child_process import ChildLauncher, ChildProcess
from services.host.domain.replicas import Replica

READY = b"HTTP/1.1 200 OK\r\n\r\nok\n"
REPLICA = Replica("llm", 0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "PROBE_TIMEOUT_S", 0.3)


@pytest.fixture
def queue() -> Queue:
    backends = [{"name": "local", "engine": {"kind": "simulated"}}]
    (queue,) = queues(ModelsFile.model_validate({"model_classes": {"llm": {"backends": backends}}}).model_classes)
    return queue


class Printing(ChildLauncher):
    """Runs a line of Python in place of a worker."""

    code = "import os; print(*(os.environ['HEADWAY_' + name] for name in ('WORKER_HOST', 'CONFIG', 'WORKER_ASLEEP')))"

    def command(self, queue: Queue) -> tuple[str, ...]:
        return (sys.executable, "-c", self.code)


@asynccontextmanager
async def door(answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[int]:
    """A side door that answers as it likes; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await answer(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def process(port: int) -> ChildProcess:
    """A worker with that side door, which itself has ended."""
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    return ChildProcess(ended, port)


async def test_how_it_is_is_what_its_side_door_says() -> None:
    async def says(writer: asyncio.StreamWriter) -> None:
        writer.write(next(answers))

    unready = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"
    asleep, loading = b"llm: asleep\n", b"embedding: the engine is starting\n"
    answers = iter([READY, unready + loading, unready + asleep + asleep, unready + asleep + loading])
    async with door(says) as port:
        worker = await process(port)
        assert [await worker.answer() for _ in range(4)] == ["ready", "neither", "asleep", "neither"]


@pytest.mark.parametrize(
    "answer", [b"", b"garbage", b"HTTP/1.1", b"HTTP/1.1 two hundred\r\n\r\n", b"\xff\x00\r\n\r\n"]
)
async def test_what_is_no_answer_is_none(answer: bytes) -> None:
    async def says(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with door(says) as port:
        assert await (await process(port)).answer() is None


async def test_an_answer_that_takes_too_long_or_never_ends_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3)

    async def without_end(writer: asyncio.StreamWriter) -> None:
        writer.write(READY)
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    monkeypatch.setattr(child_process, "MAX_ANSWER_BYTES", 1 << 20)
    async with door(nothing) as port:
        assert await (await process(port)).answer() is None
    async with door(without_end) as port:
        assert await (await process(port)).exposition() is None


async def test_a_port_where_nobody_listens_is_no_answer() -> None:
    worker = await process(1)
    assert await worker.answer() is None
    assert await worker.exposition() is None


async def test_telling_and_killing_what_has_ended_is_nothing() -> None:
    worker = await process(1)
    worker.sleep()
    worker.wake()
    worker.stop()
    worker.kill()
    assert await worker.wait() == 0


async def test_its_output_is_kept_in_a_log_of_its_own_and_it_knows_its_host_and_whether_to_sleep(
    queue: Queue, tmp_path: Path
) -> None:
    launcher = Printing("host-1", tmp_path, Path("/etc/headway"))
    for asleep in (False, True):
        worker = await launcher.start(REPLICA, queue, asleep=asleep)
        assert await worker.wait() == 0
    assert (
        tmp_path / "logs" / "worker-llm-0.log"
    ).read_text() == "host-1 /etc/headway False\nhost-1 /etc/headway True\n"


async def test_its_output_may_go_where_that_of_the_host_goes(
    queue: Queue, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    launcher = Printing("host-1", tmp_path, Path("/etc/headway"), to_files=False)
    await (await launcher.start(REPLICA, queue, asleep=False)).wait()
    assert capfd.readouterr().out == "host-1 /etc/headway False\n"
    assert not (tmp_path / "logs").exists()


async def test_a_log_that_has_grown_large_is_moved_aside(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "MAX_LOG_BYTES", 5)
    launcher = Printing("host-1", tmp_path, Path("/etc/headway"))
    for _ in range(3):
        await (await launcher.start(REPLICA, queue, asleep=False)).wait()
    logs = tmp_path / "logs"
    assert sorted(log.name for log in logs.iterdir()) == ["worker-llm-0.log", "worker-llm-0.log.1"]


def test_a_further_backend_is_named_by_its_label(queue: Queue, tmp_path: Path) -> None:
    burst = queue.model_copy(update={"group": "headway-worker-llm.burst"})
    command = ChildLauncher("host-1", tmp_path, None).command(burst)
    assert command[1:] == ("-m", "headway", "worker", "--model-class", "llm.burst")
