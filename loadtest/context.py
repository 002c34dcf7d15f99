"""What a scenario is given, and what it promises."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.plane.endpoints import Endpoints, load_endpoints
from loadtest.generator import Load

CONFIG = Path(__file__).parent / "config"
ONE_MACHINE = {"HEADWAY_KAFKA_PARTITIONS": "4"}
"""For a plane that is measured on one, as docs/operations.md advises."""
BROKEN = "broken"
"""The key under which a scenario tells which promises were not kept: the command then ends with exit code 1."""


@dataclass(frozen=True, slots=True)
class Context:
    """The load to make, the home of the plane to make it on, and somebody to tell."""

    load: Load
    home: Path
    say: Callable[[str], None]
    requests: int | None = None
    faults: int | None = None
    """How many to make; None: as many as the scenario thinks fit."""

    @property
    def endpoints(self) -> Endpoints:
        """As they are now: a part that was started again has another process."""
        return load_endpoints(self.home)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to run, and the plane it wants when it gets one of its own."""

    run: Callable[[Context], Awaitable[dict[str, Any]]]
    replicas: Mapping[str, int] = field(default_factory=dict)
    """How many instances of a service, if not one."""
    config: Path | Callable[[Path], Path] = CONFIG
    """A folder, or what makes one in a plane's home."""
    env: Mapping[str, str] = field(default_factory=dict)
    """For its services."""
    repeatable: bool = False
    """Whether it may run again on the same plane, which it leaves as it found it: `--repeats`."""

    def folder(self, home: Path) -> Path:
        """Of the configuration."""
        return self.config if isinstance(self.config, Path) else self.config(home)

    @property
    def purpose(self) -> str:
        """The first line of the scenario's module."""
        return (inspect.getdoc(inspect.getmodule(self.run)) or "").partition("\n")[0]


def broken(**promises: bool) -> dict[str, list[str]]:
    """The names of those that were not kept, as a scenario's figures say it."""
    return {BROKEN: [name for name, kept in promises.items() if not kept]}
