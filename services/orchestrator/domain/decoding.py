"""From a request's bytes to JSON that the plane can carry: what cannot be is named by its field."""

import json
import math
import re
from codecs import BOM_UTF8
from typing import Any, NoReturn

from schemas.base import Json

MAX_DEPTH = 64
"""Levels of arrays and objects: deep nesting exhausts parsers downstream, and no real input needs it."""
MAX_PATH = 120
_CONTAINERS = (dict, list)
_SHOWN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")


Path = tuple[str | int, ...]


class UndecodableError(Exception):
    """The bytes are not a JSON object: there is no request to answer."""


class UnsafeValueError(Exception):
    """Decodable, but a value cannot be carried on. The message names its field."""


def decode(value: bytes | None) -> dict[str, Json]:
    """The JSON object in a record's value.

    Raises UndecodableError when it is not one. Duplicate keys count as undecodable: readers disagree on which wins.
    """
    if value is not None and value.startswith(BOM_UTF8):
        raise UndecodableError("the value begins with a byte order mark; send UTF-8 without one")
    try:
        decoded = _DECODER.decode((value or b"").decode())
    except UnicodeDecodeError as error:
        raise UndecodableError(f"the value is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise UndecodableError(f"the value is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise UndecodableError(f"the value is not JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise UndecodableError('the value is not a JSON object; send {"pipeline": …, "input": {…}}')
    return decoded


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys)


def check(value: Json) -> None:
    """Refuses what JSON or UTF-8 cannot carry on: NaN, infinities, lone surrogates, NUL, too deep a nesting.

    Raises UnsafeValueError, whose message names the field by its path, as far as keys may be shown.
    """
    stack: list[tuple[Path, Json]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, str):
            if wrong := _fault(item):
                _refuse(path, wrong)
        elif isinstance(item, float):
            if not math.isfinite(item):
                _refuse(path, "is not a finite number (NaN and infinities are not JSON)")
        elif isinstance(item, _CONTAINERS):
            if len(path) >= MAX_DEPTH:
                _refuse(path, f"is nested deeper than {MAX_DEPTH} levels")
            stack += _children(path, item)


def shown(key: str) -> str:
    """A key as a message may name it: one that is no short, plain name may be a secret as much as a value."""
    return key if _SHOWN.fullmatch(key) else "…"


def _children(path: Path, item: dict[str, Json] | list[Json]) -> list[tuple[Path, Json]]:
    if isinstance(item, list):
        return [((*path, index), child) for index, child in enumerate(item)]
    for key in item:
        if wrong := _fault(key):
            _refuse(path, wrong, "a key")
    return [((*path, key), child) for key, child in item.items()]


def _fault(text: str) -> str | None:
    if "\x00" in text:
        return "holds a NUL character; remove it"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "holds a lone surrogate: half of a character; send whole characters"
    return None


def _refuse(path: Path, why: str, what: str = "") -> NoReturn:
    """`path` is shown as `input.items[3].name`."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in path).removeprefix(".")
    whole = f"{place} ({what})" if place and what else place or what
    raise UnsafeValueError(f"`{whole[:MAX_PATH]}` {why}")
