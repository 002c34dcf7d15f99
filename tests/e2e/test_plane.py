"""`headway up`, as a person runs it: one command, one home, nothing left behind."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from headway.plane.endpoints import Endpoints, load_endpoints
from headway.plane.errors import PlaneError
from headway.plane.ports import free_ports

pytestmark = pytest.mark.plane

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
async def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `headway init` writes: a function, a simulated model, one pipeline."""
    folder = tmp_path_factory.mktemp("init") / "config"
    code, output = await finished(await headway("init", str(folder)))
    assert code == 0, output
    return folder


async def headway(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "headway", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **environment},
    )


async def start(home: Path, config: Path) -> asyncio.subprocess.Process:
    return await headway("up", "--ports", "auto", "--home", str(home), "--config", str(config))


async def finished(process: asyncio.subprocess.Process) -> tuple[int, str]:
    output, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode is not None
    return process.returncode, output.decode()


@asynccontextmanager
async def up(home: Path, config: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Endpoints]]:
    """A plane that is ready; interrupted at the end, unless it is gone by then."""
    process = await start(home, config)
    try:
        await until(lambda: process.returncode is not None or is_ready(home))
        assert process.returncode is None, await finished(process)
        yield process, load_endpoints(home)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await finished(process)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.1)


def is_ready(home: Path) -> bool:
    try:
        return load_endpoints(home).ready
    except PlaneError:
        return False


def family(supervisor: int) -> list[psutil.Process]:
    """Everything a plane runs: services, workers, servers, the reaper."""
    return psutil.Process(supervisor).children(recursive=True)


def is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def describe(endpoints: Endpoints) -> tuple[str, set[str]]:
    """The cluster's id and its topics."""
    admin = AIOKafkaAdminClient(bootstrap_servers=endpoints.kafka)
    await admin.start()
    try:
        return str((await admin.describe_cluster())["cluster_id"]), set(await admin.list_topics())
    finally:
        await admin.close()


async def submit(home: Path, name: str) -> tuple[int, str]:
    return await finished(await headway("submit", "hello", "--home", str(home), "--input", f'{{"name": "{name}"}}'))


async def test_an_interrupted_plane_leaves_nothing_and_a_killed_one_neither(tmp_path: Path, config: Path) -> None:
    home = tmp_path / "home"
    async with up(home, config) as (process, endpoints):
        cluster, topics = await describe(endpoints)
        assert {"inference-requests", "inference-events", "inference-responses"} <= topics
        code, output = await submit(home, "Ada")
        assert (code, "Ada" in output) == (0, True), output

        code, output = await finished(await start(home, config))
        assert code != 0
        assert f"already up in {home} (pid {process.pid})" in output.replace("\n", " ")
        assert "Traceback" not in output

        members = family(process.pid)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        code, output = await finished(process)
        assert time.monotonic() - started < 12
        assert code == 0, output
    await until(lambda: all(map(is_gone, members)))

    async with up(home, config) as (process, endpoints):
        assert await describe(endpoints) == (cluster, topics), "a later plane finds its data again"
        code, output = await submit(home, "Grace")
        assert (code, "Grace" in output) == (0, True), output

        members = family(process.pid)
        process.kill()
        await until(lambda: all(map(is_gone, members)))


async def test_a_taken_port_names_the_setting(tmp_path: Path, config: Path) -> None:
    settings = (
        "PLANE_KAFKA_PORT",
        "PLANE_REDIS_PORT",
        *(f"{s}_METRICS_PORT" for s in ("ORCHESTRATOR", "AGGREGATOR", "AUTOSCALER", "HOST")),
    )
    environment = {f"HEADWAY_{name}": str(port) for name, port in zip(settings, free_ports(6), strict=True)}
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", int(environment["HEADWAY_PLANE_KAFKA_PORT"])
    )
    async with server:
        code, output = await finished(
            await headway("up", "--home", str(tmp_path), "--config", str(config), **environment)
        )
    assert code != 0
    words = " ".join(output.split())
    assert f"port {environment['HEADWAY_PLANE_KAFKA_PORT']} on 127.0.0.1 is taken" in words
    assert "HEADWAY_PLANE_KAFKA_PORT" in words
    assert "--ports auto" in words
    assert "Traceback" not in words
