"""One CEL expression: compiled once, evaluated on plain JSON within bounds, its result plain JSON again."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

from schemas.base import Json
from services.chassis.expressions.checked import MAX_ITEMS, Facts, Tree, facts
from services.chassis.expressions.errors import ExpressionError, compile_errors, evaluation_message

MAX_EXPRESSION = 16_384
"""Characters of one expression."""
MAX_RESULT = 1 << 20
"""Characters of what one expression makes, roughly as JSON."""
MAX_WORK = 1 << 28
"""Characters copied or compared by loops and text searches, at worst: tenths of a second."""
MAX_DEPTH = 64
"""Levels of lists and objects an expression may read or make."""

_EXTENSIONS = (ext_strings.ExtStrings(), ext_optional.ExtOptional())
_NOT_JSON = {
    "TIMESTAMP": "a timestamp: wrap it in string(…)",
    "DURATION": "a duration: wrap it in string(…)",
    "BYTES": "bytes: wrap them in string(…)",
    "TYPE": "a type: compare it, or wrap it in string(…)",
    "optional_type": "an optional: end it with .orValue(…)",
}


@lru_cache(maxsize=256)
def _environment(steps: frozenset[str]) -> Any:
    """Declares each step as the variable `steps.<id>`: the type checker then finds an unknown one."""
    variables = {f"steps.{step}": cel.Type.DYN for step in steps}
    return cel.NewEnv(variables={"input": cel.Type.DYN, **variables}, extensions=_EXTENSIONS)


class InvalidExpressionError(Exception):
    """Everything that is wrong with one expression."""

    def __init__(self, *errors: ExpressionError) -> None:
        super().__init__(*errors)
        self.errors = errors


class Program:
    """A compiled expression. Raises InvalidExpressionError."""

    def __init__(self, source: str, steps: frozenset[str]) -> None:
        self.source = source
        compiled = _compile(source, steps)
        self._facts = facts(compiled.serialize())
        _refuse_pitfalls(self._facts)
        self._compiled = compiled
        self.type: str = compiled.return_type().name()
        if kind := _not_json(self.type):
            raise InvalidExpressionError(ExpressionError(f"its value is {kind}"))

    @property
    def roots(self) -> frozenset[str]:
        """`input` and `steps.<id>`, as far as it reads them."""
        return frozenset(self._facts.reads)

    def evaluate(self, values: Mapping[str, Json]) -> Json:
        """`values` has every root. Raises ExpressionError, whose message repeats no value."""
        if self._facts.path is not None:
            return _follow(values, self._facts.path)
        data = _prune(values, self._facts.reads)
        self._refuse_heavy(data)
        try:
            result = self._compiled.eval(data=data)
            value = result.value()
            failed = result.type() == cel.Type.ERROR
        except TypeError:
            raise ExpressionError("its value is an optional: end it with .orValue(…)") from None
        except RuntimeError as error:
            raise ExpressionError(evaluation_message(str(error), self.source)) from None
        if failed:
            raise ExpressionError(evaluation_message(value, self.source))
        return _Result().json(value)

    def _refuse_heavy(self, data: Json) -> None:
        """The library bounds neither time nor memory: hostile input must not hold up or exhaust a service."""
        read = _Reading()
        read.add(data)
        if self._facts.loops and read.longest > MAX_ITEMS:
            raise ExpressionError(f"its loop reads a list or object of more than {MAX_ITEMS:,} elements")
        again = read.longest * _size_of(data, self._facts.repeated)
        sought = read.size * _size_of(data, self._facts.sought)
        if max(again, sought) > MAX_WORK:
            raise ExpressionError("the values are too large for what it does with them: use a function for that")


def _compile(source: str, steps: frozenset[str]) -> Any:
    if not source.strip():
        raise InvalidExpressionError(ExpressionError("an empty expression", hint="write `$${` for a literal `${`"))
    if len(source) > MAX_EXPRESSION:
        raise InvalidExpressionError(ExpressionError(f"an expression has at most {MAX_EXPRESSION:,} characters"))
    if "\0" in source:
        raise InvalidExpressionError(ExpressionError("an expression holds no NUL character", source.index("\0")))
    try:
        return _environment(steps).compile(source)
    except RuntimeError as error:
        raise InvalidExpressionError(*compile_errors(str(error), source, steps)) from None


def _refuse_pitfalls(found: Facts) -> None:
    if shadowing := found.variables & {"input", "steps"}:
        raise InvalidExpressionError(ExpressionError(f"a loop's variable cannot be named `{min(shadowing)}`"))
    if found.loops and found.unbounded_splits:
        hint = f"split(separator, {MAX_ITEMS}); the last piece then holds the rest"
        raise InvalidExpressionError(
            ExpressionError(f"beside a loop, `split` needs a limit of ≤ {MAX_ITEMS:,}", hint=hint)
        )


def _not_json(type_name: str) -> str | None:
    return _NOT_JSON.get(type_name.partition("<")[0])


def _follow(values: Mapping[str, Json], path: tuple[str | int, ...]) -> Json:
    """A plain selection is walked here: the library would copy the value in and out, and cut texts at a NUL."""
    value: Json = values
    for key in path:
        if isinstance(value, list):
            if not isinstance(key, int):
                raise ExpressionError(f"`{key}` is read from a list: index it first, like [0]")
            if not 0 <= key < len(value):
                raise ExpressionError(f"it reads element {key} of a list of {len(value)}")
            value = value[key]
            continue
        if not isinstance(value, Mapping):
            raise ExpressionError(f"`{key}` is read from something that is no object")
        if key not in value:
            raise ExpressionError(f"there is no field `{key}`")
        value = value[key]
    return value


def _prune(value: Json, tree: Tree | None) -> Json:
    """The part of a value that is read: all of it is copied into the library at every evaluation."""
    if tree is None or not isinstance(value, Mapping):
        return value
    return {key: _prune(value[key], branch) for key, branch in tree.items() if key in value}


class _Reading:
    """Checks and measures what an expression reads."""

    def __init__(self) -> None:
        self.size = 0
        """Characters and elements."""
        self.longest = 0
        """Elements of the longest list or object."""

    def add(self, value: Json, depth: int = 0) -> None:
        """Raises ExpressionError for what the library would cut or refuse."""
        self.size += 1
        if isinstance(value, str):
            self._text(value)
        elif isinstance(value, dict):
            self._elements(value.values(), len(value), depth)
            for key in value:
                self._text(key)
        elif isinstance(value, list):
            self._elements(value, len(value), depth)
        elif isinstance(value, int) and value.bit_length() > 63:
            raise ExpressionError("a whole number it reads does not fit 64 bits")

    def _text(self, text: str) -> None:
        self.size += len(text)
        if "\0" in text:
            raise ExpressionError("a text it reads holds a NUL character")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise ExpressionError("a text it reads is not valid Unicode") from None

    def _elements(self, values: Any, count: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"a value it reads has more than {MAX_DEPTH} levels")
        self.longest = max(self.longest, count)
        for value in values:
            self.add(value, depth + 1)


def _size_of(data: Json, tree: Tree) -> int:
    """The size of the part of `data` that `tree` takes."""
    reading = _Reading()
    if tree:
        reading.add(_prune(data, tree))
    return reading.size


class _Result:
    """A value of the library as JSON, bounded. Keys are sorted: the library has them in any order."""

    def __init__(self) -> None:
        self._size = 0

    def json(self, value: Any) -> Json:
        """Raises ExpressionError for what JSON cannot hold."""
        self._size += 2
        if isinstance(value, str):
            self._size += len(value)
        if self._size > MAX_RESULT:
            raise ExpressionError(f"its value has more than {MAX_RESULT:,} characters")
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return _finite(value)
        if isinstance(value, list):
            return [self.json(_element(element)) for element in value]
        if isinstance(value, dict):
            return {key: self.json(_element(value[key])) for key in self._keys(value)}
        kind = _not_json(_TYPE_NAMES.get(type(value).__name__, "TYPE"))
        raise ExpressionError(f"its value holds {kind}")

    def _keys(self, value: dict[Any, Any]) -> list[str]:
        if not all(isinstance(key, str) for key in value):
            raise ExpressionError("its value has an object with keys that are no strings")
        self._size += sum(map(len, value))
        return sorted(value)


_TYPE_NAMES = {"datetime": "TIMESTAMP", "timedelta": "DURATION", "bytearray": "BYTES", "bytes": "BYTES"}


def _element(value: Any) -> Any:
    try:
        return value.value()
    except TypeError:
        raise ExpressionError("its value holds an optional: end it with .orValue(…)") from None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ExpressionError("its value is not a finite number")
    return value
