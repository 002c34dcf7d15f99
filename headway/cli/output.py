"""What commands print: tables for people, JSON for programs, and text from outside made harmless."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.console import Console

UNKNOWN = "–"
"""Shown for a figure that cannot be read: never 0."""
PIPE_WIDTH = 400
"""Columns when stdout is no terminal: nothing is wrapped or cut for a screen that is not there."""


def console(*, stderr: bool = False) -> "Console":
    """A console that prints what it is given: no markup, no emoji codes, no highlighting of figures."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False, soft_wrap=not width)


def safe(text: object, limit: int = 2_000) -> str:
    """One line or several of foreign text: control characters and lone surrogates escaped, cut at `limit`."""
    raw = str(text)
    shown = "".join(char if _is_harmless(char) else _escaped(char) for char in raw[:limit])
    return shown if len(raw) <= limit else f"{shown}… ({len(raw)} characters)"


def _is_harmless(char: str) -> bool:
    return char in "\n\t" or char.isprintable()


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def line(text: object, limit: int = 200) -> str:
    """`safe`, on one line."""
    return " ".join(safe(text, limit).split())


def say(text: str) -> None:
    """A remark beside the result: on stderr, so that stdout stays the result."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """One JSON document on stdout, in ASCII: harmless on a terminal too."""
    print(json.dumps(value, indent=2, default=_plain))


def _plain(value: object) -> object:
    """Of what JSON does not know: a model's fields, and the words of anything else."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump else str(value)


def print_rows(rows: "Sequence[DataclassInstance]", *, as_json: bool, empty: str) -> None:
    """A table of frozen dataclasses: a column a field; None is unknown. `empty` is said when there is no row."""
    if as_json:
        print_json([asdict(row) for row in rows])
    elif rows:
        console().print(table(rows))
    else:
        say(empty)


def table(rows: "Sequence[DataclassInstance]") -> Any:
    """The rich table of `rows`, which are of one class."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for field in fields(rows[0]):
        figures = all(isinstance(getattr(row, field.name), int | float | None) for row in rows)
        shown.add_column(field.name.replace("_", " "), justify="right" if figures else "left")
    for row in rows:
        shown.add_row(*(Text(cell(value)) for value in (getattr(row, field.name) for field in fields(row))))
    return shown


def cell(value: object) -> str:
    """A value as a table shows it."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
        case Mapping():
            return ", ".join(f"{key}={cell(item)}" for key, item in value.items())
        case tuple() | list():
            return ", ".join(map(cell, value))
        case _:
            return line(value)


def duration(milliseconds: float) -> str:
    """`0 ms`, `0.4 ms`, `812 ms`, `1.24 s`, `2 min 05 s`."""
    if milliseconds < 0.05:
        return "0 ms"
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.2f} s"
    return f"{milliseconds // 60_000:.0f} min {milliseconds % 60_000 / 1_000:02.0f} s"


def dollars(amount: float) -> str:
    """Small sums with the digits they need: `$2.50`, `$0.000021`, `<$0.000001`."""
    if 0 < amount < 0.000_001:
        return "<$0.000001"
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.6f}"
