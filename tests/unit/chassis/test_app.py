"""A service starts, works, and ends within its bound, whatever its parts do."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic_settings import SettingsConfigDict

from services.chassis import app as chassis
from services.chassis.app import DIE_WITH_PARENT, EXIT_FAILED, EXIT_UNUSABLE, App, run_service
from services.chassis.kafka.types import ProducerDeadError
from services.chassis.logging import log
from services.chassis.settings import (
    KafkaSettings,
    PlaneSettings,
    RedisSettings,
    ServiceSettings,
    SettingsError,
    environment,
)

SERVICE = Path(__file__).with_name("service_under_test.py")
ROOT = Path(__file__).parents[3]


class QuickSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="HEADWAY_WORKER_")

    drain_timeout_s: float = 0.1


Main = Callable[[App[QuickSettings]], Awaitable[None]]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App[QuickSettings]:
    monkeypatch.setattr(chassis, "_end_after", lambda _seconds: None)  # it would end the tests
    return App(
        "worker", "host-worker-1", QuickSettings(), PlaneSettings(), KafkaSettings(), RedisSettings()
    )  # fmt: skip


async def live(app: App[QuickSettings], main: Main) -> int:
    async with asyncio.timeout(5):
        return await app.live(main)


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_it_ends_with_0_when_main_has_drained(app: App[QuickSettings]) -> None:
    async def main(app: App[QuickSettings]) -> None:
        app.component("beside", for_ever())
        app.stop()
        await app.stopping.wait()

    assert await live(app, main) == 0


async def test_components_work_until_main_has_drained(app: App[QuickSettings]) -> None:
    done: list[str] = []

    async def beside() -> None:
        try:
            await for_ever()
        finally:
            done.append("beside")

    async def main(app: App[QuickSettings]) -> None:
        app.component("beside", beside())
        await asyncio.sleep(0)
        app.stop()
        await asyncio.sleep(0.01)
        done.append("main")

    await live(app, main)
    assert done == ["main", "beside"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_component_that_swallows_a_cancellation_ends_all_the_same(
    app: App[QuickSettings], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chassis, "RECANCEL_S", 0.01)

    async def swallows() -> None:
        with suppress(asyncio.CancelledError):
            await for_ever()
        await for_ever()

    async def main(app: App[QuickSettings]) -> None:
        app.component("beside", swallows())
        await asyncio.sleep(0)
        if fails:
            raise ValueError("oops")

    assert await live(app, main) == (EXIT_FAILED if fails else 0)


async def test_main_may_end_the_components_before_it_closes_what_they_use(app: App[QuickSettings]) -> None:
    ended: list[str] = []

    async def beside() -> None:
        try:
            await for_ever()
        finally:
            ended.append("beside")

    async def main(app: App[QuickSettings]) -> None:
        app.component("beside", beside())
        await asyncio.sleep(0)
        await app.end_components()
        ended.append("client")

    assert await live(app, main) == 0
    assert ended == ["beside", "client"]


async def test_a_component_may_end_before_the_others(app: App[QuickSettings]) -> None:
    async def main(app: App[QuickSettings]) -> None:
        app.component("once", asyncio.sleep(0))
        await asyncio.sleep(0.01)

    assert await live(app, main) == 0


@pytest.mark.parametrize("error", [ValueError("oops"), ProducerDeadError("rejected"), TimeoutError("slow")])
async def test_the_first_component_that_fails_ends_the_process_and_is_named(
    app: App[QuickSettings], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(log, "error", lambda event, **fields: told.append({"event": event, **fields}))
    drained = False

    async def fails() -> None:
        raise error

    async def fails_in_turn() -> None:
        try:
            await for_ever()
        finally:
            raise OSError("a consequence")

    async def main(app: App[QuickSettings]) -> None:
        nonlocal drained
        app.component("in-turn", fails_in_turn())
        app.component("producer", fails())
        await app.stopping.wait()
        drained = True

    assert await live(app, main) == EXIT_FAILED
    assert told == [{"event": "component_failed", "component": "producer", "exc_info": error}]
    assert not drained  # no offset may pass what failed


async def test_main_that_fails_ends_the_process(app: App[QuickSettings]) -> None:
    async def main(app: App[QuickSettings]) -> None:
        app.component("beside", for_ever())
        raise ValueError("oops")

    assert await live(app, main) == EXIT_FAILED


async def test_a_setting_that_cannot_be_used_is_one_line(
    app: App[QuickSettings], capfd: pytest.CaptureFixture[str]
) -> None:
    async def main(app: App[QuickSettings]) -> None:
        raise SettingsError("HEADWAY_REDIS_URL: write redis://host:port")

    assert await live(app, main) == EXIT_UNUSABLE
    assert capfd.readouterr().err == "headway worker: HEADWAY_REDIS_URL: write redis://host:port\n"


async def test_what_does_not_drain_in_time_is_cancelled(app: App[QuickSettings]) -> None:
    async def main(app: App[QuickSettings]) -> None:
        app.stop()
        await for_ever()

    assert await live(app, main) == EXIT_FAILED


async def test_a_time_out_of_mains_own_is_a_failure_like_any_other(app: App[QuickSettings]) -> None:
    async def main(app: App[QuickSettings]) -> None:
        raise TimeoutError

    assert await live(app, main) == EXIT_FAILED


async def test_a_stopping_service_is_not_ready(app: App[QuickSettings]) -> None:
    app.readiness.add("main", lambda: None)
    seen: list[dict[str, str]] = []

    async def main(app: App[QuickSettings]) -> None:
        seen.append(app.readiness.missing())
        app.stop()
        seen.append(app.readiness.missing())

    await live(app, main)
    assert seen == [{}, {"stopping": "stopping"}]


def test_a_bad_setting_is_found_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main(app: App[QuickSettings]) -> None:
        raise AssertionError("started")

    monkeypatch.setenv("HEADWAY_WORKER_METRICS_PORT", "http")
    assert run_service(QuickSettings, main) == EXIT_UNUSABLE
    assert capfd.readouterr().err.startswith("headway worker: HEADWAY_WORKER_METRICS_PORT: ")


Spawn = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts the service as a process and waits until it is up."""
    started: list[subprocess.Popen[str]] = []

    def start(behaviour: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(SERVICE), behaviour],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(PYTHONPATH=str(ROOT), **env),
        )
        started.append(process)
        assert process.stdout
        while process.stdout.readline() not in ("up\n", ""):
            pass
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=30)


def last_event(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate(timeout=30)
    return json.loads(out.splitlines()[-1])["event"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(spawn: Spawn, number: signal.Signals) -> None:
    process = spawn("drains")
    process.send_signal(number)
    assert last_event(process) == "service_ended"
    assert process.returncode == 0


def test_the_same_signal_again_ends_it_at_once_and_another_does_not(spawn: Spawn) -> None:
    process = spawn("drains-too-long", HEADWAY_WORKER_DRAIN_TIMEOUT_S="60")
    process.send_signal(signal.SIGINT)
    assert process.stdout
    while "service_stopping" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 128 + signal.SIGINT


@pytest.mark.parametrize("behaviour", ["blocks-its-loop", "leaves-a-thread"])
def test_it_ends_soon_after_its_bound_whatever_hangs(spawn: Spawn, behaviour: str) -> None:
    process = spawn(behaviour, HEADWAY_WORKER_DRAIN_TIMEOUT_S="0.2")
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert last_event(process) == "teardown_timed_out"
    assert process.returncode == EXIT_FAILED
    assert time.monotonic() - began < 0.2 + chassis.TEARDOWN_S + 5


def test_it_does_not_survive_its_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    parent_code = (
        "import os, subprocess, sys, time\n"
        f"env = {{**os.environ, {DIE_WITH_PARENT!r}: str(os.getpid())}}\n"
        f"child = subprocess.Popen([sys.executable, {str(SERVICE)!r}, 'drains'], env=env, stdout=subprocess.PIPE)\n"
        "while child.stdout.readline() != b'up\\n': pass\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code], stdout=subprocess.PIPE, env=environment(PYTHONPATH=str(ROOT))
    )
    assert parent.stdout
    parent.stdout.readline()
    child = psutil.Process(int(pid_file.read_text()))
    parent.kill()
    parent.communicate(timeout=5)
    deadline = time.monotonic() + 20
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it survived"


def test_where_the_kernel_does_not_watch_the_parent_a_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([17, 17, 1])
    monkeypatch.setattr(chassis, "PARENT_POLL_S", 0)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        chassis._watch_parent("17")
    assert (ended.value.code, list(parents)) == (EXIT_FAILED, [])


def test_it_does_not_start_for_a_parent_that_is_gone() -> None:
    env = environment(PYTHONPATH=str(ROOT), **{DIE_WITH_PARENT: str(os.getpid() + 1)})
    done = subprocess.run(
        [sys.executable, str(SERVICE), "drains"], env=env, capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (EXIT_FAILED, b"")
