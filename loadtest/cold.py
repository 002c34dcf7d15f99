"""A configuration of which nothing runs until it is asked for: the repository's own models, and simulated ones.

Every class has a pipeline of its own beside those that need several: `alone-llm`.
"""

import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from loadtest.fleet import Said, placed_ms
from loadtest.steps import Step
from schemas.base import Json

REAL = Path(__file__).parents[1] / "infra" / "config"
SIMULATED = Path(__file__).parent / "coldstart"
AT_ZERO: Mapping[str, Json] = {
    "tier": "zero",
    "min_replicas": 0,
    "max_replicas": 1,
    "target_drain": "10s",
    "cooldown": "5s",
}
"""The cooldown bounds how long this takes, and is longer than any of the loads' parts."""
DEADLINE = "10m"
"""The retriever embeds its documents when it is first started."""


def furnished(home: Path) -> Path:
    """The folder, below a plane's home."""
    folder = home / "config"
    shutil.copytree(REAL, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(SIMULATED / "pipelines", folder / "pipelines", dirs_exist_ok=True)
    classes = {name: each | {"scaling": AT_ZERO} for name, each in (_classes(REAL) | _classes(SIMULATED)).items()}
    (folder / "models.yaml").write_text(yaml.safe_dump({"model_classes": classes}), encoding="utf-8")
    for name in classes:
        (folder / "pipelines" / f"{alone(name)}.yaml").write_text(yaml.safe_dump(_alone(name)), encoding="utf-8")
    return folder


def alone(model_class: str) -> str:
    """The pipeline that calls nothing else."""
    return f"alone-{model_class}"


class Start(NamedTuple):
    """A class's own cold start, with nothing beside it."""

    lone_s: float
    """From when a host was told to keep a worker until its first task was done."""
    cpu_s: float
    """That the worker computed meanwhile."""


def lone_s(said: Iterable[Said], steps: Iterable[Step], model_class: str, from_ms: int) -> float:
    """Of a class that was asked once. Raises ValueError when no host was told."""
    placed = placed_ms(said, model_class, from_ms)
    if placed is None:
        raise ValueError(f"nobody was told to start {model_class}")
    return (min(step.over_ms for step in steps if step.model_class == model_class) - placed) / 1_000


def allowed_s(starts: Collection[Start], cores: float, service_s: float, times: float) -> float:
    """How long one request may take that finds its classes cold: the slowest start, if nothing waits for another.

    Or what all starts compute, where the cores are fewer than that takes: no order makes it less.
    """
    slowest_s = max(start.lone_s for start in starts)
    return max(slowest_s, sum(start.cpu_s for start in starts) / cores) * times + service_s


def _classes(folder: Path) -> dict[str, dict[str, Any]]:
    classes: dict[str, dict[str, Any]] = yaml.safe_load((folder / "models.yaml").read_text())["model_classes"]
    return classes


def _alone(model_class: str) -> dict[str, Json]:
    return {
        "name": alone(model_class),
        "priority": "interactive",
        "deadline": DEADLINE,
        "input": {"type": "object", "required": ["input"]},
        "steps": [{"id": "call", "model_class": model_class, "input": "${input.input}"}],
        "output": "${steps.call}",
    }
