"""Configurations side by side: what differs, which partitions change lanes, and what is left without models. Pure."""

import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

import yaml

from schemas.base import Json, Priority
from schemas.config import Bundle
from schemas.models import Backend, LlamaCppEngine, ModelClass, OnnxEngine, Queue, SimulatedEngine, queues

_VECTOR = struct.pack("<384f", 1.0, *[0.0] * 383)
STAND_INS: Mapping[type, Json] = {
    OnnxEngine: {"vectors": [b64encode(_VECTOR).decode()], "dimensions": 384},
    LlamaCppEngine: {"text": "(simulated)", "finish_reason": "stop"},
}
"""What simulated engines answer in the place of real models: of the right shape, so that pipelines run."""


@dataclass(frozen=True, slots=True)
class Change:
    """One pipeline version, model class or tenant that is not the same; `lines` is a unified diff."""

    kind: str
    name: str
    change: str
    lines: tuple[str, ...]


def changes(old: Bundle, new: Bundle) -> Iterator[Change]:
    """From `old` to `new`, in the order of a bundle."""
    before, after = _parts(old), _parts(new)
    for kind, name in [*before, *(key for key in after if key not in before)]:
        was, becomes = before.get((kind, name)), after.get((kind, name))
        if was != becomes:
            change = "added" if was is None else "removed" if becomes is None else "changed"
            yield Change(kind, name, change, tuple(_diff(was, becomes)))


def _parts(bundle: Bundle) -> dict[tuple[str, str], Any]:
    """Every named part as plain values, without what was left to its default."""
    plain = bundle.model_dump(mode="json", exclude_defaults=True)
    pipelines = {
        ("pipeline", f"{spec.name}@{spec.version}"): written
        for spec, written in zip(bundle.pipelines, plain.get("pipelines", ()), strict=True)
    }
    classes = {("model class", name): written for name, written in plain.get("model_classes", {}).items()}
    tenants = {("tenant", name): written for name, written in plain.get("tenants", {}).items()}
    spending = {("scaling", "budget"): plain["scaling"]} if plain.get("scaling") else {}
    return pipelines | classes | tenants | spending


def _diff(was: Any, becomes: Any) -> Iterator[str]:
    old, new = ([] if part is None else yaml.safe_dump(part, sort_keys=False).splitlines() for part in (was, becomes))
    yield from (
        line for line in unified_diff(old, new, lineterm="", n=1) if not line.startswith(("---", "+++", "@@"))
    )


def moved_partitions(old: Mapping[str, ModelClass], new: Mapping[str, ModelClass]) -> list[tuple[Queue, list[int]]]:
    """Partitions of the queues of `old` that stand in another lane, or in none, in `new`: they must hold no work.

    Work in them would be served in the wrong lane, or by nobody.
    """
    after = {queue.topic: queue for queue in queues(new)}
    moved: list[tuple[Queue, list[int]]] = []
    for queue in queues(old):
        if (kept := after.get(queue.topic)) is not None:
            listed = (tp for lane in Priority for tp in queue.lanes.of(lane) if tp not in kept.lanes.of(lane))
            moved.append((queue, sorted(listed)))
        else:
            moved.append((queue, list(range(queue.lanes.count))))
    return [(queue, partitions) for queue, partitions in moved if partitions]


def without_models(bundle: Bundle) -> Bundle:
    """The same, with every real model replaced by a simulated engine."""
    return bundle.model_copy(
        update={"model_classes": {name: _simulated(found) for name, found in bundle.model_classes.items()}}
    )


def classes_with_models(bundle: Bundle) -> list[str]:
    """Those that `without_models` changes."""
    return [
        name
        for name, found in bundle.model_classes.items()
        if any(type(backend.engine) in STAND_INS for backend in found.backends)
    ]


def _simulated(model_class: ModelClass) -> ModelClass:
    return model_class.model_copy(update={"backends": tuple(map(_stand_in, model_class.backends))})


def _stand_in(backend: Backend) -> Backend:
    answer = STAND_INS.get(type(backend.engine))
    if answer is None:
        return backend
    return backend.model_copy(update={"engine": SimulatedEngine(kind="simulated", output=answer)})
