"""A guide as data: the files that it has readers write, and the commands that it has them type."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class File(NamedTuple):
    """A block of YAML: its first line, a comment, names the file."""

    name: str
    text: str


def files(guide: Path) -> list[File]:
    """In the order of the page: a later one with the same name takes the earlier one's place."""
    return [File(text.partition("\n")[0].removeprefix("# "), text) for kind, text in _blocks(guide) if kind == "yaml"]


def commands(guide: Path) -> list[str]:
    """Each on one line, without what is said about it."""
    return [
        re.split(r"\s{2,}#", line)[0].strip()
        for kind, text in _blocks(guide)
        if not kind
        for line in text.replace("\\\n", " ").splitlines()
    ]


def _blocks(guide: Path) -> Iterator[tuple[str, str]]:
    return ((found[1], found[2]) for found in _BLOCK.finditer(guide.read_text(encoding="utf-8")))
