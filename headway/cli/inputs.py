"""What people hand to a command: JSON in an argument, a file or standard input."""

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from headway.cli.exits import CliError

MAX_BYTES = 1 << 20
"""No record is larger: a wrong file is refused before it is read into memory."""


def read_object(given: str, option: str = "--input") -> dict[str, Any]:
    """A JSON object from `given` itself, from `@FILE`, or from standard input (`-`). A CliError names `option`."""
    try:
        value = json.loads(_text(given, option), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise CliError(f"{option}: not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise CliError(f"{option}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CliError(f'{option}: must be a JSON object, like \'{{"question": "…"}}\'')
    return value


def _text(given: str, option: str) -> str:
    if given == "-":
        return _bounded(sys.stdin.buffer.read(MAX_BYTES + 1), option)
    if not given.startswith("@"):
        return given
    try:
        with Path(given[1:]).open("rb") as file:
            return _bounded(file.read(MAX_BYTES + 1), option)
    except OSError as error:
        raise CliError(f"{option}: {given[1:]} cannot be read: {error.strerror}") from None


def _bounded(data: bytes, option: str) -> str:
    if len(data) > MAX_BYTES:
        raise CliError(f"{option}: larger than {MAX_BYTES} bytes: no request may be")
    return data.decode()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def milliseconds(given: str | None, option: str) -> int | None:
    """`30s` → 30000."""
    from schemas.durations import parse_duration_ms

    try:
        return None if given is None else parse_duration_ms(given)
    except ValueError as error:
        raise CliError(f"{option}: {error}") from None
