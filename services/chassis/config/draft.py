"""A configuration as it was written: raw values that need not have the shape they should have.

The checks read drafts, so that one mistake does not hide the next.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from schemas.base import Json
from schemas.config import Bundle
from schemas.models import ModelClass
from services.chassis.config.problems import Path


def mapping(value: Json) -> Mapping[str, Json]:
    """`value`, if it is one; else nothing."""
    return value if isinstance(value, dict) else {}


def elements(value: Json) -> list[Any]:
    """`value`, if it is a list; else nothing."""
    return list(value) if isinstance(value, list | tuple) else []


@dataclass(frozen=True, slots=True)
class DraftStep:
    """A step as written, and its index in the file."""

    index: int
    raw: Mapping[str, Json]

    @property
    def id(self) -> str | None:
        return self.text("id")

    @property
    def path(self) -> Path:
        return ("steps", self.index)

    def text(self, key: str) -> str | None:
        """The value of a key, if it is a text."""
        value = self.raw.get(key)
        return value if isinstance(value, str) else None

    def templates(self) -> Iterator[tuple[Path, Json]]:
        """Its templates, with their paths."""
        for key in ("input", "value"):
            if key in self.raw:
                yield (*self.path, key), self.raw[key]
        for index, link in enumerate(elements(self.raw.get("fallback"))):
            if isinstance(link, dict) and "value" in link:
                yield (*self.path, "fallback", index, "value"), link["value"]

    def conditions(self) -> Iterator[tuple[Path, str]]:
        """Its conditions, with their paths."""
        for key in ("gate", "when"):
            if (text := self.text(key)) is not None:
                yield (*self.path, key), text


@dataclass(frozen=True)
class DraftPipeline:
    """A pipeline as written."""

    label: str
    """Where it is, for people: its file, or its name."""
    raw: Mapping[str, Json]

    @cached_property
    def steps(self) -> list[DraftStep]:
        """Those that are objects."""
        found = enumerate(elements(self.raw.get("steps")))
        return [DraftStep(index, step) for index, step in found if isinstance(step, dict)]

    @cached_property
    def step_ids(self) -> frozenset[str]:
        return frozenset(step.id for step in self.steps if step.id is not None)


@dataclass(frozen=True)
class Draft:
    """All of a configuration. `models` is None when its file could not be read: nothing is known of it then."""

    models: Mapping[str, Json] | None
    pipelines: list[DraftPipeline] = field(default_factory=list)
    tenants: Mapping[str, Json] = field(default_factory=dict)
    complete: bool = True
    """Whether every file could be read."""

    @classmethod
    def of(cls, bundle: Bundle) -> "Draft":
        """A bundle as somebody would have written it."""
        raw = bundle.model_dump(mode="json")
        pipelines = [DraftPipeline(f"{spec.name}@{spec.version}", {}) for spec in bundle.pipelines]
        written = zip(pipelines, raw.get("pipelines", ()), strict=True)
        return cls(
            models=raw.get("model_classes", {}),
            pipelines=[DraftPipeline(pipeline.label, value) for pipeline, value in written],
            tenants=raw.get("tenants", {}),
        )

    def model_classes(self) -> dict[str, ModelClass]:
        """Those that have their shape."""
        found = {}
        for name, raw in (self.models or {}).items():
            try:
                found[name] = ModelClass.model_validate(raw)
            except ValidationError:  # told where the shape is checked
                continue
        return found

    @cached_property
    def backends(self) -> dict[str, list[str]]:
        """Names of the backends by class, as far as they can be read."""
        return {
            name: [backend["name"] for backend in elements(mapping(raw).get("backends")) if _is_named(backend)]
            for name, raw in (self.models or {}).items()
        }


def _is_named(backend: Json) -> bool:
    return isinstance(mapping(backend).get("name"), str)
