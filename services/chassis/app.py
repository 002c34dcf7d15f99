"""The life of a service process: settings, logs, signals, side door, components, and a bounded end.

    def main(config: Path | None = None) -> int:
        return run_service(OrchestratorSettings, serve, config)

    async def serve(app: App[OrchestratorSettings]) -> None:   # the composition root
        dispatch = …
        app.readiness.add("dispatch", dispatch.why_not_ready)
        app.component("dispatch", dispatch.run())
        await app.stopping.wait()
        await dispatch.drain()
        await app.end_components()                        # before what they use is closed

`serve` returns when it has drained; the components end with it. SIGTERM or SIGINT sets `stopping`; past
`drain_timeout_s` all is cancelled, and shortly after that the process ends whatever its threads do. The same signal
again ends it at once. The first component that fails ends the process with code 1 and one line that says why: its
supervisor starts it again, and the log is the state.
"""

import asyncio
import ctypes
import gc
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import uvloop

from services.chassis import logging
from services.chassis.clock import LogClock
from services.chassis.health import HealthServer, Readiness
from services.chassis.logging import log
from services.chassis.metrics import Metrics
from services.chassis.settings import (
    KafkaSettings,
    PlaneSettings,
    RedisSettings,
    ServiceSettings,
    SettingsError,
    secret,
)

DIE_WITH_PARENT = "HEADWAY_DIE_WITH_PARENT"
"""Names the process id of the parent without which this process must not live."""

EXIT_FAILED, EXIT_UNUSABLE = 1, 2
TEARDOWN_S = 1.0
PARENT_POLL_S = 0.5
RECANCEL_S = 0.5
"""A component has so long to clean up after itself undisturbed."""

S = TypeVar("S", bound=ServiceSettings)


@dataclass
class App(Generic[S]):
    """What a service is built from, and the group its components run in."""

    service: str
    instance: str
    """Host name, service and a random suffix: another one after every start."""
    settings: S
    plane: PlaneSettings
    kafka: KafkaSettings
    redis: RedisSettings
    clock: LogClock = field(default_factory=LogClock)
    metrics: Metrics = field(default_factory=Metrics)
    readiness: Readiness = field(default_factory=Readiness)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    exposition: Callable[[], Awaitable[bytes]] | None = None
    """What `/metrics` answers, if more than this process's own metrics."""
    exit_code: int = 0
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _components: list[asyncio.Task[None]] = field(default_factory=list)
    _limit: asyncio.Timeout = field(default_factory=lambda: asyncio.Timeout(None))

    def component(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` beside `main`, until `main` has returned. Its failure ends the process."""
        task = self._group.create_task(self._guarded(name, work), name=name)
        task.add_done_callback(lambda _: work.close())  # if it was cancelled before its first step
        self._components.append(task)

    async def end_components(self) -> None:
        """Cancels all components and waits for them. `main` may do so itself, before it closes the clients they use.

        Once is not enough: redis-py swallows a cancellation that meets a connection just being closed.
        """
        while running := [task for task in self._components if not task.done()]:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=RECANCEL_S)

    def stop(self) -> None:
        """Asks for the orderly end, and sees to it that there is one. Once is enough."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        self.readiness.add("stopping", lambda: "stopping")
        self._limit.reschedule(asyncio.get_running_loop().time() + self.settings.drain_timeout_s)
        _end_after(self.settings.drain_timeout_s + TEARDOWN_S)

    async def live(self, main: Callable[["App[S]"], Awaitable[None]]) -> int:
        """Runs `main` and its components to the end; the process's exit code."""
        try:
            async with self._group:
                try:
                    await self._guarded("main", self._serve(main))
                finally:
                    await self.end_components()
        except* Exception:  # told by `_failed`
            assert self.exit_code
        return self.exit_code

    async def _serve(self, main: Callable[["App[S]"], Awaitable[None]]) -> None:
        try:
            async with self._limit:
                try:
                    async with self._side_door():
                        await main(self)
                finally:
                    self.stop()
        except TimeoutError:
            if not self._limit.expired():
                raise
            self.exit_code = EXIT_FAILED
            log.warning("drain_timed_out", timeout_s=self.settings.drain_timeout_s)

    def _side_door(self) -> HealthServer:
        setting = f"HEADWAY_{self.service.upper()}_METRICS_PORT"
        return HealthServer(
            self.readiness, self._expose, self.settings.metrics_host, self.settings.metrics_port, setting
        )

    async def _expose(self) -> bytes:
        return await self.exposition() if self.exposition else self.metrics.exposition()

    async def _guarded(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._failed(name, error)
            raise

    def _failed(self, name: str, error: Exception) -> None:
        """Only the first failure is told: the others are its consequences."""
        if self.exit_code:
            return
        self.exit_code = EXIT_FAILED
        _end_after(self.settings.drain_timeout_s + TEARDOWN_S)
        if isinstance(error, SettingsError):
            self.exit_code = EXIT_UNUSABLE
            _complain(self.service, error)
        else:
            log.error("component_failed", component=name, exc_info=error)


def run_service(settings: type[S], main: Callable[[App[S]], Awaitable[None]], config: Path | None = None) -> int:
    """Runs one service to its end; the exit code: 0 drained, 1 failed, 2 cannot start with these settings."""
    try:
        app = _build(settings, config)
    except SettingsError as error:
        _complain(settings.section(), error)
        return EXIT_UNUSABLE
    die_with_parent()
    _settle_memory()
    logging.configure(app.service, app.instance, app.settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_live(app, main))


async def _live(app: App[S], main: Callable[[App[S]], Awaitable[None]]) -> int:
    seen: set[signal.Signals] = set()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _on_signal, app, number, seen)
    log.info("service_started")
    code = await app.live(main)
    log.info("service_ended", exit_code=code)
    return code


def _on_signal(app: App[S], number: signal.Signals, seen: set[signal.Signals]) -> None:
    """Ctrl-C at a terminal reaches a whole process group, so a host's SIGTERM may follow: that is the same wish."""
    if number in seen:
        os._exit(128 + number)
    if not seen:
        log.info("service_stopping", signal=number.name)
    seen.add(number)
    app.stop()


def _build(settings: type[S], config: Path | None) -> App[S]:
    config = config or PlaneSettings.load().config
    service = settings.section()
    return App(
        service=service,
        instance=f"{socket.gethostname()}-{service}-{secrets.token_hex(3)}",
        settings=settings.load(config),
        plane=PlaneSettings.load(config).model_copy(update={"config": config}),
        kafka=KafkaSettings.load(config),
        redis=RedisSettings.load(config),
    )


def _settle_memory() -> None:
    """What the imports left: 75,000 objects that every full collection would walk (60-120 ms in which nothing else
    happens), and 1-14 MB that glibc keeps though they are free.
    """
    gc.collect()
    gc.freeze()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def _complain(service: str, error: SettingsError) -> None:
    sys.stderr.write(f"headway {service}: {error}\n")


def _end_after(seconds: float) -> None:
    """Ends the process then, even if its event loop or one of its threads hangs."""

    def end() -> None:
        log.error("teardown_timed_out", after_s=seconds)
        os._exit(EXIT_FAILED)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def die_with_parent() -> None:
    """If the environment asks for it: this process is killed when its parent dies, however that happens.

    The parent starts it from a thread that lives as long as itself: Linux counts the thread that forked.
    """
    asked = secret(DIE_WITH_PARENT)
    if asked is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    else:
        threading.Thread(target=_watch_parent, args=(asked,), daemon=True).start()
    if asked != str(os.getppid()):  # it died before we asked
        os._exit(EXIT_FAILED)


def _watch_parent(parent: str) -> None:
    while str(os.getppid()) == parent:
        time.sleep(PARENT_POLL_S)
    os._exit(EXIT_FAILED)
