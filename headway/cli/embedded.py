"""The embedded plane as `up`, `demo` and tests start it: which services, and which configuration folder."""

import asyncio
import contextlib
import math
import re
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from headway.cli.output import say
from headway.plane.endpoints import Endpoints
from headway.plane.ports import HOST, PortMode, Ports, choose_ports, free_ports
from headway.plane.process import tail
from headway.plane.service import ServiceSpec, SetupSpec
from headway.plane.supervisor import Plane, Progress
from services.host.adapters.machine import cores

SERVICES = ("orchestrator", "aggregator", "autoscaler", "host")
HOST_READY_TIMEOUT_S = 600.0
"""The first start of real models builds their indexes."""
LEAST_CORES = 2
"""Of what the host announces: models share one core as well as two, only more slowly."""
PROBE_S = 0.5
ONE_WISH_S = 1.0

T = TypeVar("T")


class EmbeddedPlane:
    """Kafka, Valkey, orchestrator, aggregator, autoscaler, and a host with its workers, run by the folder `config`.

    Without `models`, real models are replaced by simulated ones. Ready means that every worker is.
    `replicas`: how many instances of a service, if not one (0: none); further ones listen on free ports. `env`: for
    services, and for what makes the topics.
    """

    def __init__(
        self,
        home: Path,
        config: Path,
        on_progress: Progress,
        *,
        ports: PortMode = "default",
        models: bool = True,
        replicas: Mapping[str, int] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        chosen = choose_ports(ports)
        folder = str(config.resolve())
        self._home = home
        self._on_progress = on_progress
        self._host_port = chosen.metrics["host"]
        services = list(_services(chosen, replicas or {}, {"HEADWAY_CONFIG": folder} | dict(env or {})))
        apply = (sys.executable, "-m", "headway", "config", "apply", folder, "--if-changed", "--no-wait")
        setup = SetupSpec(apply if models else (*apply, "--no-models"), env or {})
        self._plane = Plane(home, chosen, services, setup, on_progress)

    async def start(self) -> Endpoints:
        """Returns when every worker is ready; a PlaneError when something cannot start, with all stopped again."""
        telling = asyncio.create_task(self._tell_of_workers())
        try:
            return await self._plane.start()
        finally:
            telling.cancel()

    async def wait(self) -> None:
        """Returns once the plane has been stopped; a PlaneError when it cannot go on."""
        await self._plane.wait()

    async def stop(self) -> None:
        """Drains and stops everything, in about 10 s at most."""
        await self._plane.stop()

    async def _tell_of_workers(self) -> None:
        """Which workers the host waits for: loading a model is what takes long in a start."""
        while True:
            await asyncio.sleep(PROBE_S)
            if waits := await _why_not_ready(self._host_port):
                indexing = "".join(f"; {worker} embeds {done}" for worker, done in _indexing(self._home, waits))
                self._on_progress("host", "starting", waits + indexing)


def run_foreground(work: Coroutine[Any, Any, T]) -> T | None:
    """Runs `work` to its end; None when SIGINT or SIGTERM cancelled it, and it has stopped what it started."""
    try:
        return asyncio.run(_cancellable(work))
    except asyncio.CancelledError:
        say("stopped")
        return None


async def _cancellable(work: Coroutine[Any, Any, T]) -> T:
    """One wish may come as several signals at once; only a later one means `do not wait for the orderly end`."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    asked = -math.inf

    def ask() -> None:
        nonlocal asked
        if task is not None and loop.time() - asked > ONE_WISH_S:
            task.cancel()
        asked = loop.time()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    return await work


def _services(ports: Ports, replicas: Mapping[str, int], env: Mapping[str, str]) -> Iterator[ServiceSpec]:
    taken = {ports.kafka, ports.redis, *ports.metrics.values()}
    further = iter(free_ports(sum(replicas.values()), taken))
    for service in SERVICES:
        for instance in range(1, replicas.get(service, 1) + 1):
            yield ServiceSpec(
                service,
                argv=(sys.executable, "-m", "headway", "serve", service),
                metrics_port=ports.metrics[service] if instance == 1 else next(further),
                env=env,
                ready_timeout_s=HOST_READY_TIMEOUT_S if service == "host" else 60.0,
                instance=instance,
                defaults=host_defaults(replicas) if service == "host" else {},
            )


def host_defaults(replicas: Mapping[str, int]) -> dict[str, str]:
    """A lone host, or one that nobody places on, need not wait to be told what is configured."""
    defaults = {"HEADWAY_HOST_CPU": str(LEAST_CORES)} if cores() < LEAST_CORES else {}
    if replicas.get("autoscaler", 1) == 0 or replicas.get("host", 1) == 1:
        defaults["HEADWAY_HOST_PATIENCE_S"] = "0"
    return defaults


def _indexing(home: Path, waits: str) -> Iterator[tuple[str, str]]:
    """Workers among those waited for that say in their log how far they are with an index: `512 of 1131`."""
    for worker in re.findall(r"[\w.-]+-\d+", waits):
        for text in reversed(tail(home / "logs" / f"worker-{worker}.log").splitlines()):
            if found := re.search(r'"event":"embedded".*"done":(\d+),"total":(\d+)', text):
                yield worker, f"{found[1]} of {found[2]}"
                break


async def _why_not_ready(port: int) -> str:
    """The first line of what `/readyz` complains about; empty when it does not."""
    with contextlib.suppress(OSError, TimeoutError, IndexError, ValueError):
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                head, _, body = (await reader.read(4_096)).partition(b"\r\n\r\n")
                return body.decode().splitlines()[0] if b" 503 " in head else ""
            finally:
                writer.close()
    return ""
