"""Keeps messages readable across versions: JSON Schema snapshots, and what may change between two of them.

During a rolling upgrade an older reader meets a newer writer, and the other way round. Hence a field that both know
keeps its schema, and only optional fields may come or go. `python -m schemas.compatibility` rewrites the snapshots,
and refuses when a change would break either side: then the message needs a new `schema_version`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from schemas.config import CurrentRevision, Revision
from schemas.events import EVENT
from schemas.fleet import FLEET
from schemas.joins import StepReady
from schemas.requests import InferenceRequest
from schemas.responses import InferenceResponse
from schemas.tasks import InferenceTask
from schemas.text import TextPiece
from schemas.usage import UsageRecord

FOLDER = Path(__file__).parent / "snapshots"

MESSAGES: dict[str, TypeAdapter[Any]] = {
    "requests": TypeAdapter(InferenceRequest),
    "events": EVENT,
    "joins": TypeAdapter(StepReady),
    "tasks": TypeAdapter(InferenceTask),
    "responses": TypeAdapter(InferenceResponse),
    "usage": TypeAdapter(UsageRecord),
    "fleet": FLEET,
    "config": TypeAdapter(Revision | CurrentRevision),
    "text": TypeAdapter(TextPiece),
}
"""What travels, by the short name of its topic or channel."""

_COSMETIC = ("title", "description", "default", "examples")

Schema = dict[str, Any]


def current(name: str) -> Schema:
    """The JSON Schema of one topic's messages, as the code has it."""
    return MESSAGES[name].json_schema(ref_template="#/$defs/{model}")


def snapshot(name: str) -> Schema:
    """The committed JSON Schema."""
    found: Schema = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def breaking_changes(old: Schema, new: Schema) -> Iterator[str]:
    """Every change between two schemas that an older reader or writer could not survive, one line each."""
    olds, news = _models(old), _models(new)
    for model in sorted(olds.keys() & news.keys()):
        yield from _breaking(model, olds[model], news[model])


def _models(schema: Schema) -> dict[str, Schema]:
    """The message itself and what it is made of, by name."""
    return {**schema.get("$defs", {}), schema.get("title", "message"): schema}


def _breaking(model: str, old: Schema, new: Schema) -> Iterator[str]:
    if "properties" not in old:
        is_union = "oneOf" in old or "anyOf" in old  # a union may grow: readers pass unknown members over
        if not is_union and _essence(old) != _essence(new):
            yield f"{model}: its values changed; older processes know only the old ones"
        return
    for name in sorted(old["properties"].keys() | new.get("properties", {}).keys()):
        problem = _problem(_Field.of(old, name), _Field.of(new, name))
        if problem:
            yield f"{model}.{name}: {problem}"


class _Field(NamedTuple):
    """One property of a schema; `shape` is None when it is not there."""

    shape: Any
    required: bool

    @classmethod
    def of(cls, schema: Schema, name: str) -> "_Field":
        shape = schema.get("properties", {}).get(name)
        return cls(_essence(shape), name in schema.get("required", ()))


def _problem(old: _Field, new: _Field) -> str | None:
    if new.shape is None:
        return "removed, but older readers require it" if old.required else None
    if old.shape is None:
        return "new and required, but older writers do not send it" if new.required else None
    if old.shape != new.shape and not _grew(old.shape, new.shape):
        return "its schema changed"
    return "required on one side only" if old.required != new.required else None


def _grew(old: Schema, new: Schema) -> bool:
    """Whether it is a choice by a discriminator, of what it was and more: whoever writes the new uses none of it
    before all readers know it. A new kind of engine is named when the plane has been upgraded.
    """
    kinds = [shape.get("discriminator", {}).get("mapping", {}) for shape in (old, new)]
    return bool(kinds[0]) and kinds[0].items() <= kinds[1].items()


def _essence(schema: Any) -> Any:
    """A schema without what only people read. Properties may be called `title`: their schemas are objects."""
    if isinstance(schema, dict):
        return {
            key: _essence(value)
            for key, value in schema.items()
            if key not in _COSMETIC or (key != "default" and isinstance(value, dict))
        }
    return [_essence(item) for item in schema] if isinstance(schema, list) else schema


def main() -> int:
    """Rewrites the snapshots; 1 when a change would break somebody."""
    FOLDER.mkdir(exist_ok=True)
    for name in MESSAGES:
        file = FOLDER / f"{name}.json"
        broken = list(breaking_changes(snapshot(name), current(name))) if file.exists() else []
        if broken:
            sys.stderr.write("\n".join([f"{name}: this change breaks older readers or writers:", *broken]) + "\n")
            return 1
        file.write_text(json.dumps(current(name), indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
