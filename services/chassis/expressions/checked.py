"""What a checked expression reads and how it grows, from the syntax tree the CEL library serializes.

The tree is `cel.expr.CheckedExpr`, a protobuf message whose descriptor the library does not ship; the few fields that
matter are read off the wire (field numbers: google/cel-spec, proto/cel/expr/{checked,syntax}.proto).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

Path = tuple[str, ...]
"""A root (`input` or `steps.<id>`), then the fields selected from it."""
Tree = dict[str, "Tree | None"]
"""Paths as a tree: None takes everything below."""

SEARCHES = frozenset({"contains", "indexOf", "lastIndexOf", "matches", "replace", "split", "join"})
"""Text functions whose cost is the product of their target and their arguments."""
MAX_ITEMS = 1_000
"""Elements of a list that is looped over: the library's `map` and `filter` take their square (1,000: 16 ms)."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the syntax tree. A comprehension's children are range, start, condition, step, result."""

    kind: str
    name: str = ""
    children: tuple["Node", ...] = ()
    constant: str | int | None = None
    variables: tuple[str, ...] = ()
    test_only: bool = False


@dataclass(frozen=True, slots=True)
class Reads:
    """The paths under a node: named directly, or through the variable of a loop."""

    direct: frozenset[Path] = frozenset()
    through: frozenset[Path] = frozenset()

    def __or__(self, other: "Reads") -> "Reads":
        return Reads(self.direct | other.direct, self.through | other.through)


@dataclass(slots=True)
class Facts:
    """What is known about an expression before it is evaluated."""

    reads: Tree = field(default_factory=dict)
    path: tuple[str | int, ...] | None = None
    """The whole expression, if it only selects: a root, then fields and indices."""
    loops: bool = False
    repeated: Tree = field(default_factory=dict)
    """What the body of a loop reads besides its own elements: read once for each."""
    sought: Tree = field(default_factory=dict)
    """What the arguments of text searches read."""
    unbounded_splits: bool = False
    """Whether it splits a text into any number of pieces, more than a loop may have."""
    variables: frozenset[str] = frozenset()
    """Names of the loops' variables."""


def facts(serialized: bytes) -> Facts:
    """Of an expression as `Expression.serialize()` gives it."""
    (checked,) = _all(serialized, 2)
    (root,) = _all(checked, 4)
    tree = _node(root)
    walk = _Walk()
    reads = walk.visit(tree, {})
    return Facts(
        reads=_tree(reads.direct),
        path=_selection(tree),
        loops=walk.loops,
        repeated=_tree(walk.repeated),
        sought=_tree(walk.sought),
        unbounded_splits=walk.unbounded_splits,
        variables=frozenset(walk.variables),
    )


def _tree(paths: Collection[Path]) -> Tree:
    """`{a.b, a.b.c, d}` → `{a: {b: None}, d: None}`: the shorter path takes all."""
    found: Tree = {}
    for path in sorted(paths, key=len):
        branch: Tree | None = found
        for name in path[:-1]:
            branch = branch.setdefault(name, {}) if branch is not None else None
        if branch is not None:
            branch.setdefault(path[-1], None)
    return found


class _Walk:
    """One pass over the tree; what is collected on the way stands in its attributes."""

    def __init__(self) -> None:
        self.loops = False
        self.unbounded_splits = False
        self.repeated: set[Path] = set()
        self.sought: set[Path] = set()
        self.variables: set[str] = set()

    def visit(self, node: Node, scope: Mapping[str, Reads]) -> Reads:
        """What is read at and below `node`; `scope` says what the variables of the loops around it stand for."""
        if node.kind == "comprehension":
            return self._loop(node, scope)
        path = _path(node, scope)
        if path is not None:
            return Reads(frozenset({path}))
        if node.kind == "ident":
            known = scope.get(node.name, Reads())
            return Reads(through=known.direct | known.through)
        reads = [self.visit(child, scope) for child in node.children]
        if node.kind == "call" and node.name in SEARCHES:
            self._search(node, reads)
        return reduce(Reads.__or__, reads, Reads())

    def _loop(self, node: Node, scope: Mapping[str, Reads]) -> Reads:
        over, start, *body = node.children
        elements, begin = self.visit(over, scope), self.visit(start, scope)
        *items, accumulator = node.variables
        self.variables.update(node.variables)
        inner = {**scope, **dict.fromkeys(items, elements), accumulator: begin}
        reads = reduce(Reads.__or__, [self.visit(child, inner) for child in body])
        if over.kind != "list" or over.children:  # `optMap` is a loop over nothing
            self.loops = True
            self.repeated |= reads.direct
        return elements | begin | reads

    def _search(self, node: Node, reads: list[Reads]) -> None:
        if node.name == "split":
            limit = node.children[2].constant if len(node.children) > 2 else None
            self.unbounded_splits |= not isinstance(limit, int) or not 0 <= limit <= MAX_ITEMS
        for argument, found in zip(node.children[1:], reads[1:], strict=True):
            if argument.kind != "const":
                self.sought |= found.direct | found.through


def _path(node: Node, scope: Mapping[str, Reads]) -> Path | None:
    """`steps.a.b.?c["d"]` → ("steps.a", "b", "c", "d")."""
    if node.kind == "ident":
        return (node.name,) if _is_root(node.name) and node.name not in scope else None
    name = node.name if node.kind == "select" else _constant_key(node)
    if not isinstance(name, str):
        return None
    path = _path(node.children[0], scope)
    return path and (*path, name)


def _constant_key(node: Node) -> str | int | None:
    """The key of an index or an optional selection, if it is written out."""
    return node.children[1].constant if node.name in ("_[_]", "_[?_]", "_?._") else None


def _is_root(name: str) -> bool:
    return name == "input" or name.startswith("steps.")


def _selection(node: Node) -> tuple[str | int, ...] | None:
    """`steps.a.b[0]` → ("steps.a", "b", 0)."""
    if node.kind == "ident":
        return (node.name,) if _is_root(node.name) else None
    selects = node.kind == "select" and not node.test_only
    key = node.name if selects else node.children[1].constant if node.name == "_[_]" else None
    path = _selection(node.children[0]) if key is not None else None
    return None if path is None or key is None else (*path, key)


# ---- the wire ----


def _node(data: bytes) -> Node:
    """`cel.expr.Expr`: one of its fields 3–9 says what it is."""
    kinds = ((number, value) for number, value in _fields(data) if number in _READERS)
    number, value = next(kinds)
    assert isinstance(value, bytes)
    return _READERS[number](value)


def _constant(data: bytes) -> Node:
    """`Constant`: field 3 is an int64, field 6 a string; the value of the other types does not matter."""
    for number, value in _fields(data):
        if number == 6 and isinstance(value, bytes):
            return Node("const", constant=value.decode())
        if number == 3 and isinstance(value, int):
            return Node("const", constant=value - (1 << 64) if value >> 63 else value)
    return Node("const")


def _ident(data: bytes) -> Node:
    return Node("ident", _name(data, 1))


def _select(data: bytes) -> Node:
    return Node("select", _name(data, 2), _nodes(data, 1), test_only=(3, 1) in _fields(data))


def _call(data: bytes) -> Node:
    return Node("call", _name(data, 2), _nodes(data, 1) + _nodes(data, 3))


def _list(data: bytes) -> Node:
    return Node("list", children=_nodes(data, 1))


def _struct(data: bytes) -> Node:
    entries = _all(data, 2)
    return Node("struct", children=tuple(node for entry in entries for node in _nodes(entry, 3) + _nodes(entry, 4)))


def _comprehension(data: bytes) -> Node:
    children = tuple(node for number in (2, 4, 5, 6, 7) for node in _nodes(data, number))
    return Node("comprehension", children=children, variables=(_name(data, 1), _name(data, 8), _name(data, 3)))


_READERS = {3: _constant, 4: _ident, 5: _select, 6: _call, 7: _list, 8: _struct, 9: _comprehension}


def _nodes(data: bytes, number: int) -> tuple[Node, ...]:
    return tuple(_node(child) for child in _all(data, number))


def _name(data: bytes, number: int) -> str:
    return b"".join(_all(data, number)).decode()


def _all(data: bytes, number: int) -> list[bytes]:
    return [value for found, value in _fields(data) if found == number and isinstance(value, bytes)]


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protobuf message: whole numbers, or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        size, at = (8, at) if wire == 1 else _varint(data, at)
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
