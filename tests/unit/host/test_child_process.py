"""A worker process is asked through its side door, and nothing it answers can harm the host."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from schemas.models import ModelsFile, Queue, queues
from services.chassis.forks.client import Child
from services.chassis.forks.messages import Signal
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


def process(port: int) -> ChildProcess:
    """A worker with that side door, of which nothing else is asked."""
    return ChildProcess(Child(0, lambda _: None), port)


async def test_how_it_is_is_what_its_side_door_says() -> None:
    async def says(writer: asyncio.StreamWriter) -> None:
        writer.write(next(answers))

    unready = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"
    asleep, loading = b"llm: asleep\n", b"embedding: the engine is starting\n"
    answers = iter([READY, unready + loading, unready + asleep + asleep, unready + asleep + loading])
    async with door(says) as port:
        worker = process(port)
        assert [await worker.answer() for _ in range(4)] == ["ready", "neither", "asleep", "neither"]


@pytest.mark.parametrize(
    "answer", [b"", b"garbage", b"HTTP/1.1", b"HTTP/1.1 two hundred\r\n\r\n", b"\xff\x00\r\n\r\n"]
)
async def test_what_is_no_answer_is_none(answer: bytes) -> None:
    async def says(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with door(says) as port:
        assert await process(port).answer() is None


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
        assert await process(port).answer() is None
    async with door(without_end) as port:
        assert await process(port).exposition() is None


async def test_a_port_where_nobody_listens_is_no_answer() -> None:
    worker = process(1)
    assert await worker.answer() is None
    assert await worker.exposition() is None


async def test_it_is_told_by_signals() -> None:
    told: list[Signal] = []
    worker = ChildProcess(Child(7, told.append), 1)
    worker.sleep()
    worker.wake()
    worker.stop()
    worker.kill()
    wanted = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL)
    assert told == [Signal(pid=7, signal=number) for number in wanted]


@pytest.fixture
def printing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., ChildLauncher]:
    """Makes launchers whose workers print what they were given, and end."""
    monkeypatch.setattr(child_process, "WORKER", "tests.unit.host.printing")
    return partial(ChildLauncher, "host-1", tmp_path, Path("/etc/headway"))


async def start(launcher: ChildLauncher, queue: Queue, *, asleep: bool = False) -> None:
    worker = await launcher.start(REPLICA, queue, asleep=asleep)
    assert await worker.wait() == 0


async def test_its_output_is_kept_in_a_log_of_its_own_and_it_knows_its_host_and_whether_to_sleep(
    queue: Queue, printing: Callable[..., ChildLauncher], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    burst = queue.model_copy(update={"group": "headway-worker-llm.burst"})
    log = tmp_path / "logs" / "worker-llm-0.log"
    async with printing() as launcher:
        await start(launcher, queue)
        await start(launcher, burst, asleep=True)
        said = log.read_text()
        monkeypatch.setattr(child_process, "MAX_LOG_BYTES", 5)
        await start(launcher, queue)
    first, second = said.splitlines()
    assert first == "llm host-1 /etc/headway False headway worker --model-class llm"
    assert second == "llm.burst host-1 /etc/headway True headway worker --model-class llm.burst"
    assert log.with_name("worker-llm-0.log.1").read_text() == said, "a log that has grown large is moved aside"
    assert log.read_text() == f"{first}\n"


async def test_its_output_may_go_where_that_of_the_host_goes(
    queue: Queue, printing: Callable[..., ChildLauncher], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with printing(to_files=False) as launcher:
        await start(launcher, queue)
    assert capfd.readouterr().out.startswith("llm host-1 /etc/headway False ")
    assert not (tmp_path / "logs").exists()
