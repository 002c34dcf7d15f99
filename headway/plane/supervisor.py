"""The supervisor behind `headway up`: starts the parts in order, keeps them running, stops them in reverse."""

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from headway.plane import preflight
from headway.plane.endpoints import SUPERVISOR, Endpoints, remove_endpoints, write_endpoints
from headway.plane.errors import PlaneError
from headway.plane.home import HomeLock
from headway.plane.kafka import EmbeddedKafka
from headway.plane.ports import HOST, Ports, metrics_setting
from headway.plane.process import Server, describe_exit, run_once, tail
from headway.plane.reaper import Reaper
from headway.plane.service import Service, ServiceSpec, SetupSpec
from headway.plane.valkey import EmbeddedValkey

State = Literal["starting", "ready", "not ready", "restarting", "stopping", "stopped"]
Progress = Callable[[str, State, str], None]
"""Called with a part (`kafka`, `valkey`, `setup`, a service's name), its state, and a detail for people."""

READINESS_POLL_S = 5.0
# Together below 10 s: services drain first, the servers they drain into stop last.
SERVICE_GRACE_S = 5.5
SERVER_GRACE_S = 3.0
KAFKA_RESTARTS = 5
"""In a row. Without Kafka nothing works: if it will not live, people must hear of it."""


class Backoff:
    """Seconds to wait before a part is started again: 0.5 doubled up to 10, from anew after 30 s of health.

    One that ended in order was stopped by somebody who wants it back, and did not fail.
    """

    FIRST_S, LAST_S, HEALTHY_S = 0.5, 10.0, 30.0

    def __init__(self) -> None:
        self._next_s = self.FIRST_S
        self.in_a_row = 0
        """Ends without 30 s of health between them."""

    def after(self, lived_s: float, *, in_order: bool = False) -> float:
        if in_order or lived_s >= self.HEALTHY_S:
            self._next_s, self.in_a_row = self.FIRST_S, 0
        self.in_a_row += 1
        delay_s = self._next_s
        self._next_s = min(self.LAST_S, 2 * delay_s)
        return delay_s


class Plane:
    """An embedded plane in `home`: Kafka, Valkey, a setup command, then the services.

        plane = Plane(home, choose_ports("auto"), services, setup, on_progress)
        await plane.start()       # returns when every part is ready
        try:
            await plane.wait()    # raises when Kafka dies again and again
        finally:
            await plane.stop()

    Nothing it started survives it, even if this process is killed. Use it from the main thread.
    """

    def __init__(
        self,
        home: Path,
        ports: Ports,
        services: Sequence[ServiceSpec],
        setup: SetupSpec | None,
        on_progress: Progress,
    ) -> None:
        self._home = home.resolve()
        self._ports = ports
        self._setup = setup
        self._on_progress = on_progress
        self._lock = HomeLock(self._home)
        self._reaper = Reaper()
        self._prepared = self._home / "prepared"
        """Exists once the setup has succeeded here."""
        self._kafka = EmbeddedKafka(self._home / "kafka", ports.kafka, self._log("kafka"), self._reaper)
        self._valkey = EmbeddedValkey(self._home / "valkey", ports.redis, self._log("valkey"), self._reaper)
        self._services = [Service(s, self._environment(s), self._log(s.name), self._reaper) for s in services]
        self._metrics = {s.name: f"http://{HOST}:{s.metrics_port}/metrics" for s in services}
        self._ready = {server.name: False for server in self._servers}
        self._background: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> Endpoints:
        """Returns the endpoints once every part is ready. On any error everything is stopped before it is raised."""
        self._lock.acquire()
        try:
            preflight.check(self._home)
            self._reaper.start()
            self._publish()
            await _together(self._start(self._kafka), self._start(self._valkey))
            await self._while_kafka_lives(self._start_services())
            self._supervise()
        except BaseException:
            await self.stop()
            raise
        return self.endpoints

    async def wait(self) -> None:
        """Returns when the plane has been stopped; when Kafka will not live, stops everything: PlaneError."""
        done, _ = await asyncio.wait(self._background, return_when=asyncio.FIRST_COMPLETED)
        if self._stopping:
            return
        await self.stop()
        for task in done:  # none ends but by an error
            task.result()

    async def stop(self) -> None:
        """Drains and stops everything, in about 10 s at most; cancelled, it kills what is left.

        Nothing happens if nothing runs.
        """
        if self._stopping or not self._lock.held:
            return
        self._stopping = True
        try:
            await self._stop_all()
        finally:
            remove_endpoints(self._home)
            self._reaper.close()
            self._lock.release()

    async def _stop_all(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._ready = dict.fromkeys(self._ready, False)
        self._publish()
        await _together(*(self._stop(service, SERVICE_GRACE_S) for service in self._services))
        await _together(*(self._stop(server, SERVER_GRACE_S) for server in (self._valkey, self._kafka)))

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints(
            ready=all(self._ready.values()),
            kafka=self._kafka.bootstrap,
            redis=self._valkey.url,
            metrics=self._metrics,
            pids={SUPERVISOR: os.getpid()} | {server.name: server.pid for server in self._servers if server.pid},
        )

    @property
    def _servers(self) -> list[Server]:
        return [self._kafka, self._valkey, *self._services]

    def _supervise(self) -> None:
        work = [
            self._keep(self._kafka, KAFKA_RESTARTS),
            *(self._keep(server) for server in (self._valkey, *self._services)),
            *(self._follow_readiness(service) for service in self._services),
        ]
        self._background = [asyncio.create_task(coroutine) for coroutine in work]

    async def _start_services(self) -> None:
        """After the setup in a new home; in one that has its topics already, beside it, which saves seconds."""
        setup = [self._run_setup(self._setup)] if self._setup else []
        if not self._prepared.exists():
            await _together(*setup)
            setup = []
        await _together(*setup, *(self._start(service) for service in self._services))

    async def _run_setup(self, setup: SetupSpec) -> None:
        self._on_progress("setup", "starting", "topics and configuration")
        env = {**os.environ, **self._addresses(), **setup.env}
        try:
            await run_once(setup.argv, env, self._log("setup"), timeout_s=setup.timeout_s, reaper=self._reaper)
        except PlaneError as error:
            raise PlaneError(f"setup failed: {error}") from None
        self._prepared.touch()
        self._on_progress("setup", "ready", "")

    async def _start(self, server: Server) -> None:
        started = time.monotonic()
        await server.start(lambda detail: self._on_progress(server.name, "starting", detail))
        self._report(server, "ready", f"{time.monotonic() - started:.1f} s")

    async def _stop(self, server: Server, grace_s: float) -> None:
        if server.pid:
            self._on_progress(server.name, "stopping", "")
            await server.stop(grace_s)
            self._on_progress(server.name, "stopped", "")

    async def _keep(self, server: Server, restarts: float = math.inf) -> None:
        """Starts a server again whenever it ends; a PlaneError after so many restarts in a row.

        It has lived since it was ready: a start that fails takes longer than what counts as health.
        """
        backoff = Backoff()
        ready, since = True, time.monotonic()
        while True:
            code = await server.wait()
            delay_s = backoff.after(time.monotonic() - since, in_order=ready and code == 0)
            if backoff.in_a_row > restarts:
                self._give_up(server, code)
            self._report(server, "restarting", f"ended with {describe_exit(code)}, again in {delay_s:.1f} s")
            await asyncio.sleep(delay_s)
            ready = await self._starts_again(server)
            since = time.monotonic()

    async def _starts_again(self, server: Server) -> bool:
        try:
            await self._start(server)
        except (PlaneError, OSError) as error:  # it does not run: wait() returns at once
            self._report(server, "restarting", str(error))
            return False
        return True

    async def _follow_readiness(self, service: Service) -> None:
        """Reports a service that lives but no longer progresses, and when it does again."""
        while True:
            await asyncio.sleep(READINESS_POLL_S)
            ready = await service.is_ready()
            if service.running and ready != self._ready[service.name]:
                self._report(
                    service, "ready" if ready else "not ready", "" if ready else "/readyz does not answer 200"
                )

    async def _while_kafka_lives(self, work: Coroutine[Any, Any, None]) -> None:
        with _first_error():
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._raise_when_kafka_ends())
                await work
                watch.cancel()

    async def _raise_when_kafka_ends(self) -> None:
        self._give_up(self._kafka, await self._kafka.wait())

    def _give_up(self, server: Server, code: int) -> NoReturn:
        raise PlaneError(
            f"{server.name} ended with {describe_exit(code)}; the end of {server.log}:\n{tail(server.log)}"
        )

    def _report(self, server: Server, state: State, detail: str) -> None:
        self._ready[server.name] = state == "ready"
        self._publish()
        self._on_progress(server.name, state, detail)

    def _publish(self) -> None:
        with contextlib.suppress(OSError):  # a full disk must end neither the supervision nor the stopping
            write_endpoints(self._home, self.endpoints)

    def _log(self, name: str) -> Path:
        return self._home / "logs" / f"{name}.log"

    def _addresses(self) -> dict[str, str]:
        return {
            "HEADWAY_HOME": str(self._home),
            "HEADWAY_KAFKA_BOOTSTRAP_SERVERS": self._kafka.bootstrap,
            "HEADWAY_REDIS_URL": self._valkey.url,
        }

    def _environment(self, spec: ServiceSpec) -> dict[str, str]:
        return self._addresses() | {metrics_setting(spec.service): str(spec.metrics_port)}


@contextlib.contextmanager
def _first_error() -> Iterator[None]:
    """A group of errors says no more to people than its first one."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _together(*work: Coroutine[Any, Any, None]) -> None:
    """Runs all at once; the first error cancels the others and is raised."""
    with _first_error():
        async with asyncio.TaskGroup() as group:
            for coroutine in work:
                group.create_task(coroutine)
