"""From a request's bytes to JSON that the plane can carry: what cannot be is named by its field."""

import json
import math
import re
from typing import Any, NoReturn

from schemas.base import Json

MAX_DEPTH = 64
"""Levels of arrays and objects: deep nesting exhausts parsers downstream, and no real input needs it."""
MAX_PATH = 120
_SHOWN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")


class UndecodableError(Exception):
    """The bytes are not a JSON object: there is no request to answer."""


class UnsafeValueError(Exception):
    """Decodable, but a value cannot be carried on. The message names its field."""


def decode(value: bytes | None) -> dict[str, Json]:
    """The JSON object in a record's value.

    Raises UndecodableError when it is not one. Duplicate keys count as undecodable: readers disagree on which wins.
    """
    try:
        decoded = json.loads((value or b"").decode(), object_pairs_hook=_unique_keys)
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


def check(value: Json) -> None:
    """Refuses what JSON or UTF-8 cannot carry on: NaN, infinities, lone surrogates, NUL, too deep a nesting.

    Raises UnsafeValueError, whose message names the field by its path, as far as keys may be shown.
    """
    stack: list[tuple[str, Json, int]] = [("", value, 0)]
    while stack:
        path, item, depth = stack.pop()
        if isinstance(item, str):
            _check_text(path, item)
        elif isinstance(item, float):
            if not math.isfinite(item):
                _refuse(path, "is not a finite number (NaN and infinities are not JSON)")
        elif isinstance(item, dict | list):
            if depth >= MAX_DEPTH:
                _refuse(path, f"is nested deeper than {MAX_DEPTH} levels")
            stack.extend(_children(path, item, depth + 1))


def shown(key: str) -> str:
    """A key as a message may name it: one that is no short, plain name may be a secret as much as a value."""
    return key if _SHOWN.fullmatch(key) else "…"


def _children(path: str, item: dict[str, Json] | list[Json], depth: int) -> list[tuple[str, Json, int]]:
    if isinstance(item, list):
        return [(f"{path}[{index}]", child, depth) for index, child in enumerate(item)]
    for key in item:
        _check_text(f"{path} (a key)" if path else "a key", key)
    return [(f"{path}.{shown(key)}" if path else shown(key), child, depth) for key, child in item.items()]


def _check_text(path: str, text: str) -> None:
    if text.isascii():
        if "\x00" in text:
            _refuse(path, "holds a NUL character; remove it")
        return
    if "\x00" in text:
        _refuse(path, "holds a NUL character; remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(path, "holds a lone surrogate: half of a character; send whole characters")


def _refuse(path: str, why: str) -> NoReturn:
    raise UnsafeValueError(f"`{path[:MAX_PATH]}` {why}")
