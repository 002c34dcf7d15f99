"""One of Headway's own services as a part of the plane."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headway.plane.probes import is_ready
from headway.plane.process import Server
from headway.plane.reaper import Reaper


@dataclass(frozen=True)
class ServiceSpec:
    """What to run. `GET /readyz` on `metrics_port` answers 200 once the service is assigned and progressing."""

    service: str
    argv: tuple[str, ...]
    metrics_port: int
    env: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 60.0
    instance: int = 1
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables that count where the environment has no such one."""

    @property
    def name(self) -> str:
        """Of the part: `aggregator`, `aggregator-2` for a second instance."""
        return self.service if self.instance == 1 else f"{self.service}-{self.instance}"


@dataclass(frozen=True)
class SetupSpec:
    """A command that runs to its end after Kafka and before the services: topics and configuration."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0


class Service(Server):
    """A service as its own process, with the plane's addresses in its environment."""

    def __init__(self, spec: ServiceSpec, env: Mapping[str, str], log: Path, reaper: Reaper | None) -> None:
        super().__init__(spec.name, log, reaper)
        self._spec = spec
        self.environment = {**spec.defaults, **os.environ, **env, **spec.env}

    async def start(self, on_progress: Callable[[str], None]) -> None:
        """Returns when `/readyz` answers 200."""
        on_progress("starting")
        await self._spawn(self._spec.argv, self.environment, self.is_ready, self._spec.ready_timeout_s)

    async def is_ready(self) -> bool:
        return await is_ready(self._spec.metrics_port)
