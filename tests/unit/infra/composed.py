"""Compose files as data: `docker-compose.yml` alone, or with an overlay of `infra/` merged into it."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]

Composed = dict[str, Any]


def read(file: str) -> Composed:
    """With the defaults of its variables; the name of one stands where there is none."""
    parsed = json.dumps(yaml.safe_load((ROOT / file).read_text(encoding="utf-8")))
    with_defaults = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", parsed)
    document: Composed = json.loads(re.sub(r"\$\{(\w+):\?[^}]*\}", r"\1", with_defaults))
    return document


def composed(*overlays: str) -> Composed:
    """As compose merges: mappings by key, lists one after the other, but what is executed is replaced."""
    merged = read("docker-compose.yml")
    for overlay in overlays:
        merged = _merged(merged, read(overlay))
    return merged


def _merged(old: Any, new: Any, key: str = "") -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _merged(old.get(name), value, name) for name, value in new.items()}
    if isinstance(old, list) and isinstance(new, list) and key not in ("command", "test", "entrypoint"):
        return old + new
    return new
