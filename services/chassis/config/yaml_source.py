"""YAML as plain JSON values, with the line of every key: YAML 1.2's core types, no tags, no surprises.

`no`, `on`, `1:30` and dates stay texts; a key that stands twice, a tag, a merge key or a second document is an error.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from schemas.base import Json
from services.chassis.config.problems import Path, Problem

MAX_BYTES = 1 << 20
MAX_NODES = 50_000
"""Values of one file, aliases expanded."""
MAX_LEVELS = 64

_TAG = "tag:yaml.org,2002:"
_STYLED = ("|", ">")


class _Loader(yaml.CSafeLoader):
    """The fast loader, with types of its own."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  the library's name and form


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(
        _TAG + _name, re.compile(f"(?:{_pattern})\\Z"), ["" if char == "\0" else char for char in _first]
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Lines of a value, from 1."""

    key: int
    """Of its key, or of the value itself in a list."""
    text: int
    """Of the first character of its text."""
    block: bool
    """Whether its text stands below, line for line."""


@dataclass(slots=True)
class Source:
    """A file: its value, and where everything in it stands."""

    file: str
    value: Json = None
    problems: list[Problem] = field(default_factory=list)
    places: dict[Path, Place] = field(default_factory=dict)

    def line(self, path: Path, offset: int = 0) -> int:
        """The line of `path`, or of its nearest ancestor in the file; of a character of a text that spans lines."""
        found: Path = ()
        exact = True
        for key in path:
            if (*found, key) in self.places:
                found = (*found, key)
            else:
                exact = False
        place = self.places.get(found)
        if place is None:
            return 1
        if not exact or not offset:
            return place.key
        return place.text + (self._text(found)[:offset].count("\n") if place.block else 0)

    def _text(self, path: Path) -> str:
        value = self.value
        for key in path:
            value = value[key]
        return str(value)


def read_yaml(file: str, content: bytes) -> Source:
    """Never raises: what cannot be read is among the source's problems."""
    source = Source(file)
    try:
        text = _decode(content)
        node = yaml.compose(text, Loader=_Loader)
        source.value = None if node is None else _Builder(source).build(node, ())
    except _UnreadableError as error:
        source.problems.append(Problem(file, error.line, str(error), error.hint))
    except yaml.YAMLError as error:
        source.problems.append(_syntax_problem(file, error, text))
    return source


class _UnreadableError(Exception):
    def __init__(self, message: str, line: int, hint: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.hint = hint


def _decode(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise _UnreadableError(f"the file has {len(content):,} bytes; at most {MAX_BYTES:,} are read", 1)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _UnreadableError("not UTF-8", line, "save the file with the encoding UTF-8") from None


def _syntax_problem(file: str, error: yaml.YAMLError, text: str) -> Problem:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        character = re.search(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
        first = text.count("\n", 0, character.start()) + 1 if character else 1
        return Problem(file, first, "a control character", "write it as an escape in double quotes")
    ended = error.problem_mark.index >= len(text)
    mark = error.context_mark if ended and error.context_mark is not None else error.problem_mark
    lines = text.splitlines() or [""]
    number = min(mark.line, len(lines) - 1)
    if ended and re.search("flow|quoted", error.context or ""):
        return Problem(file, number + 1, "a quote or bracket is not closed")
    said = (error.problem or "").removeprefix("but ")
    hint = _syntax_hint(said, lines[number], lines[number][mark.column : mark.column + 1])
    return Problem(file, number + 1, f"not YAML: {said}", hint)


def _syntax_hint(said: str, line: str, character: str) -> str:
    if "another document" in said:
        return "a file holds one document: remove the `---`"
    if "${" in line and "did not find expected" in said:
        return 'put quotes around the expression: "${…}"'
    if character == "\t":
        return "indent with spaces, not with tabs"
    if "cannot start" in said:
        return "put quotes around the value"
    if "mapping values" in said:
        return "look at the indentation; a value that holds `: ` needs quotes"
    return ""


class _Builder:
    """Makes values of nodes, noting places and problems."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._nodes = 0

    def build(self, node: yaml.Node, path: Path, key_line: int | None = None) -> Json:
        """The value of a node that stands at `path`."""
        self._count(node, path)
        start = node.start_mark.line + 1
        block = isinstance(node, yaml.ScalarNode) and node.style in _STYLED
        self._source.places[path] = Place(key_line or start, start + block, block)
        if isinstance(node, yaml.MappingNode):
            self._require_tag(node, "map")
            return {key: self.build(value, (*path, key), line) for key, value, line in self._entries(node)}
        if isinstance(node, yaml.SequenceNode):
            self._require_tag(node, "seq")
            return [self.build(child, (*path, index)) for index, child in enumerate(node.value)]
        return self._scalar(node)

    def _count(self, node: yaml.Node, path: Path) -> None:
        """Few aliases of aliases make a great many values."""
        self._nodes += 1
        line = node.start_mark.line + 1
        if self._nodes > MAX_NODES:
            raise _UnreadableError(f"more than {MAX_NODES:,} values, aliases expanded", line)
        if len(path) > MAX_LEVELS:
            raise _UnreadableError("nested too deeply", line, f"at most {MAX_LEVELS} levels")

    def _entries(self, node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node, int]]:
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _TAG + "merge":
                self._problem(line, "`<<` is not supported", "write the keys out, or use an alias for a whole value")
            elif not isinstance(key, yaml.ScalarNode) or key.tag != _TAG + "str":
                written = f"`{key.value}`" if isinstance(key, yaml.ScalarNode) else "a list or object"
                self._problem(line, f"{written} is no text, but a key must be", "put quotes around it")
            elif key.value in seen:
                self._problem(line, f"the key `{key.value}` stands twice", f"it is in line {seen[key.value]} already")
            else:
                seen[key.value] = line
                yield key.value, value, line

    def _scalar(self, node: yaml.Node) -> Json:
        text = str(node.value)
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return self._whole(node, text)
            case "float":
                return self._real(node, text)
        return self._require_tag(node, "str")

    def _whole(self, node: yaml.Node, text: str) -> int:
        value = int(text, 0 if text[:2] in ("0x", "0o") else 10) if len(text) <= 40 else 1 << 64
        if value.bit_length() > 63:
            self._problem(
                node.start_mark.line + 1, "a whole number that does not fit 64 bits", "put quotes around it"
            )
            return 0
        return value

    def _real(self, node: yaml.Node, text: str) -> float:
        value = float(text)
        if math.isinf(value):
            self._problem(node.start_mark.line + 1, "a number that is too large")
            return 0.0
        return value

    def _require_tag(self, node: yaml.Node, name: str) -> None:
        if node.tag != _TAG + name:
            tag = node.tag.replace(_TAG, "!!")
            self._problem(node.start_mark.line + 1, f"the tag `{tag}` is not supported", "remove it")

    def _problem(self, line: int, message: str, hint: str = "") -> None:
        self._source.problems.append(Problem(self._source.file, line, message, hint))
