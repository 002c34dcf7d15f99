"""The Python language reference, as this interpreter ships it, cut into paragraphs worth quoting."""

import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

MIN_CHARS = 60  # shorter ones are "For example:", "New in version 3.7." and the like
MAX_SIGNATURE_CHARS = 200
MIN_PROSE = 0.6  # share of plain words; below it stands code
_PLAIN_WORD = re.compile(r"[(“\"*]*[A-Za-z][A-Za-z’'-]*[)”\"*]*[.,;:]?[)”\"*]*")
_BROKEN_WORD = re.compile(r"(?<=\w)-\n\s*(?=\w)")
_NOT_PROSE = re.compile(r"::=|>>>|\*{4}|={4}|-{4}")  # a grammar, a session, an underlined heading, a table


class Paragraph(NamedTuple):
    """`text` is the reference's own, whitespace normalised; `id` stays the same while the text does."""

    id: str
    topic: str
    text: str


def paragraphs() -> list[Paragraph]:
    """Every paragraph of prose once, under the first topic that has it."""
    from pydoc_data.topics import topics

    found: dict[str, Paragraph] = {}
    for topic, body in topics.items():
        for text in _texts(body):
            digest = sha256(text.encode()).hexdigest()[:10]
            found.setdefault(text, Paragraph(f"{topic}-{digest}", topic, text))
    return list(found.values())


def _texts(body: str) -> Iterator[str]:
    """The prose of a topic. A signature is joined to the paragraph about it, which rarely repeats the name."""
    blocks = ["", *(block for block in body.split("\n\n") if block.strip())]
    for before, block in pairwise(blocks):
        prose = _normalised(block)
        text = f"{_normalised(before)} {prose}" if _introduces(before, block) else prose
        if _is_prose(prose) and not _only_points(text):
            yield text


def _introduces(before: str, block: str) -> bool:
    """Whether `before` is a signature or term (`str.strip([chars])`) and `block`, indented deeper, explains it."""
    text = _normalised(before)
    is_term = 0 < len(text) < MAX_SIGNATURE_CHARS and not _is_prose(text) and not _NOT_PROSE.search(text)
    return is_term and _indent(before) < _indent(block)


def _is_prose(text: str) -> bool:
    words = text.split()
    plain = sum(_PLAIN_WORD.fullmatch(word) is not None for word in words)
    return len(text) >= MIN_CHARS and plain >= MIN_PROSE * len(words) and not _NOT_PROSE.search(text)


def _only_points(text: str) -> bool:
    """Whether the answer, if any, stands elsewhere: a lead-in to code or a list, a reference."""
    return text.startswith(("See also", "For full details")) or (text.endswith(":") and ". " not in text)


def _indent(block: str) -> int:
    line = block.lstrip("\n")
    return len(line) - len(line.lstrip())


def _normalised(block: str) -> str:
    """On one line; a word that was broken at its hyphen ("pre-" "computed") is whole again."""
    return " ".join(_BROKEN_WORD.sub("-", block).split())
