"""Templates: JSON whose strings may hold `${…}`; a string that is one expression keeps its type."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pydantic_core import from_json, to_json

from schemas.base import Json
from services.chassis.expressions.errors import ExpressionError, quoted
from services.chassis.expressions.program import MAX_DEPTH, MAX_RESULT, InvalidExpressionError, Program

_Values = Mapping[str, Json]
_Evaluate = Callable[[_Values], Json]

_TOKEN = re.compile(
    r"""
    (?P<whole> (?<!\w)[bB]?[rR][bB]?(?: \"\"\".*?\"\"\" | '''.*?''' | "[^"]*" | '[^']*' )
      | \"\"\"(?:\\.|[^\\])*?\"\"\" | '''(?:\\.|[^\\])*?''' )
    | (?P<text> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
    | (?P<comment> //[^\n]*)
    | (?P<quote> ["'])
    | (?P<brace> [{}])
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
"""CEL as far as it matters here; `whole` strings (raw or in three quotes) may hold line breaks or no escapes."""
_BARE_HAS = re.compile(r"(?<![\w.])has\s*\(\s*\.?\s*steps\s*\.\s*(\w+)\s*\)")


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template."""

    steps: frozenset[str]
    reads_input: bool
    _evaluate: _Evaluate

    def references(self) -> frozenset[str]:
        """Ids of the steps whose outputs it reads."""
        return self.steps

    def evaluate(self, input: Json, outputs: Mapping[str, Json]) -> Json:  # noqa: A002  the name it has in expressions
        """The value. A step without an output reads as `{}`. Raises ExpressionError, which repeats no value."""
        values = {f"steps.{step}": outputs.get(step, {}) for step in self.steps}
        values["input"] = input
        return self._evaluate(values)


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled expression that is true or false."""

    template: Template

    @property
    def reads_input(self) -> bool:
        """Whether it reads the request's input."""
        return self.template.reads_input

    def references(self) -> frozenset[str]:
        """Ids of the steps whose outputs it reads."""
        return self.template.steps

    def evaluate(self, input: Json, outputs: Mapping[str, Json]) -> bool:  # noqa: A002  as in Template
        """Raises ExpressionError, also when the value is neither true nor false."""
        value = self.template.evaluate(input, outputs)
        if not isinstance(value, bool):
            raise ExpressionError(f"a condition must be true or false, not {_kind(value)}")
        return value


def compile_template(value: Json, steps: Collection[str]) -> Template:
    """`steps` are the ids an expression may name. Raises the first ExpressionError."""
    compiling = _Compiling(frozenset(steps))
    evaluate = compiling.node(value, ())
    for error in compiling.errors:
        raise error
    return _template(evaluate, compiling.roots)


def known_template(value: Json, steps: Collection[str]) -> Template:
    """`compile_template` of a template that came by the wire, compiled before if it came before."""
    return _known(to_json(value), frozenset(steps))


@lru_cache(maxsize=4_096)
def _known(encoded: bytes, steps: frozenset[str]) -> Template:
    return compile_template(from_json(encoded), steps)


def compile_condition(text: str, steps: Collection[str]) -> Condition:
    """`text` is one `${…}`. Raises ExpressionError, also when its type is known not to be a boolean."""
    try:
        return _condition(text, frozenset(steps))
    except InvalidExpressionError as invalid:
        raise invalid.errors[0] from None


def template_errors(value: Json, steps: Collection[str]) -> list[ExpressionError]:
    """Everything that is wrong with a template."""
    compiling = _Compiling(frozenset(steps))
    compiling.node(value, ())
    return compiling.errors


def condition_errors(text: str, steps: Collection[str]) -> list[ExpressionError]:
    """Everything that is wrong with a condition."""
    try:
        _condition(text, frozenset(steps))
    except InvalidExpressionError as invalid:
        return list(invalid.errors)
    return []


def _template(evaluate: _Evaluate, roots: Collection[str]) -> Template:
    steps = frozenset(root.removeprefix("steps.") for root in roots if root != "input")
    return Template(steps, "input" in roots, evaluate)


def _kind(value: Json) -> str:
    return {"NoneType": "null", "str": "a string", "list": "a list", "dict": "an object"}.get(
        type(value).__name__, "a number"
    )


class _Compiling:
    """Turns a template into nested functions, collecting every error on the way."""

    def __init__(self, steps: frozenset[str]) -> None:
        self._steps = steps
        self.errors: list[ExpressionError] = []
        self.roots: set[str] = set()

    def node(self, value: Json, path: tuple[str | int, ...]) -> _Evaluate:
        """What evaluates `value`, which stands at `path`."""
        if len(path) > MAX_DEPTH:
            self.errors.append(ExpressionError(f"a template has at most {MAX_DEPTH} levels", path=path))
        elif isinstance(value, str) and "${" in value:
            return self._text(value, path)
        elif isinstance(value, list | tuple):
            nodes = [self.node(element, (*path, index)) for index, element in enumerate(value)]
            return lambda values: [node(values) for node in nodes]
        elif isinstance(value, dict):
            return self._object(value, path)
        return lambda _: value

    def _object(self, value: dict[str, Json], path: tuple[str | int, ...]) -> _Evaluate:
        for key in value:
            if "${" in key:
                self.errors.append(ExpressionError("a key holds no expression", path=(*path, key)))
        nodes = {key: self.node(child, (*path, key)) for key, child in value.items()}
        return lambda values: {key: node(values) for key, node in nodes.items()}

    def _text(self, text: str, path: tuple[str | int, ...]) -> _Evaluate:
        try:
            compiled = _compile_text(text, self._steps)
        except InvalidExpressionError as invalid:
            self.errors += [error.at(0, path) for error in invalid.errors]
            return lambda _: None
        self.roots |= compiled.roots

        def evaluate(values: _Values) -> Json:
            try:
                return compiled.evaluate(values)
            except ExpressionError as error:
                raise error.at(0, path) from None

        return evaluate


@dataclass(frozen=True, slots=True)
class _Located:
    """A program and where its `${` stands in a string."""

    program: Program
    position: int

    @property
    def roots(self) -> frozenset[str]:
        return self.program.roots

    def evaluate(self, values: _Values) -> Json:
        try:
            return self.program.evaluate(values)
        except ExpressionError as error:
            message = f"{quoted(self.program.source)}: {error.message}"
            raise ExpressionError(message, self.position, error.hint) from None


@dataclass(frozen=True, slots=True)
class _Text:
    """A string with expressions: literal parts and programs in turn."""

    parts: tuple[str | _Located, ...]

    @property
    def roots(self) -> frozenset[str]:
        return frozenset().union(*(part.roots for part in self.parts if isinstance(part, _Located)))

    def evaluate(self, values: _Values) -> Json:
        """Texts as they are, everything else as JSON."""
        text = "".join(part if isinstance(part, str) else _interpolated(part.evaluate(values)) for part in self.parts)
        if len(text) > MAX_RESULT:
            raise ExpressionError(f"the text has more than {MAX_RESULT:,} characters")
        return text


def _interpolated(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=4_096)
def _compile_text(text: str, steps: frozenset[str]) -> _Located | _Text:
    """One expression alone keeps its type. Raises InvalidExpressionError: every error, at its offset in `text`."""
    parts: list[str | _Located] = []
    errors: list[ExpressionError] = []
    for literal, source, position in _split(text):
        if literal:
            parts.append(literal)
        if source is None:
            continue
        try:
            parts.append(_Located(_program(source, steps), position))
        except InvalidExpressionError as invalid:
            errors += [error.at(position + 2, ()) for error in invalid.errors]
    if errors:
        raise InvalidExpressionError(*errors)
    match parts:
        case [_Located() as alone]:
            return alone
    return _Text(tuple(parts))


@lru_cache(maxsize=4_096)
def _program(source: str, steps: frozenset[str]) -> Program:
    tokens = list(_TOKEN.finditer(source))
    _refuse_test_of_step(tokens, steps)
    written = [_one_line(token[0]) if token.lastgroup == "text" else token[0] for token in tokens]
    try:
        return Program("".join(written), steps)
    except InvalidExpressionError as invalid:
        for error in invalid.errors:
            error.position -= _added(tokens, written, error.position)
        raise


def _one_line(text: str) -> str:
    """CEL wants `\\n` in a string, but YAML's double quotes have made a line break of it."""
    return text.replace("\n", "\\n").replace("\r", "\\r")


def _added(tokens: list[re.Match[str]], written: list[str], position: int) -> int:
    """Characters that `_one_line` added before a position."""
    end = added = 0
    for token, text in zip(tokens, written, strict=True):
        end += len(text)
        if end > position:
            break
        added += len(text) - len(token[0])
    return added


def _refuse_test_of_step(tokens: list[re.Match[str]], steps: frozenset[str]) -> None:
    """The library takes `has(steps.embed)` for `steps.embed`."""
    code = "".join(token[0] for token in tokens if token.lastgroup not in ("text", "whole", "comment"))
    found = _BARE_HAS.search(code)
    if found and found[1] in steps:
        hint = f"write has(steps.{found[1]}.<field>), or steps.{found[1]} != {{}}"
        raise InvalidExpressionError(ExpressionError("`has` tests a field, and a step always is there", hint=hint))


@lru_cache(maxsize=4_096)
def _condition(text: str, steps: frozenset[str]) -> Condition:
    compiled = _compile_text(text.strip(), steps)
    if not isinstance(compiled, _Located):
        hint = 'write it as "${…}"'
        raise InvalidExpressionError(ExpressionError("a condition is one expression and nothing else", hint=hint))
    if compiled.program.type not in ("BOOL", "DYN"):
        known = compiled.program.type.lower()
        raise InvalidExpressionError(ExpressionError(f"a condition must be true or false; this is of type {known}"))
    return Condition(_template(compiled.evaluate, compiled.roots))


def _split(text: str) -> Iterator[tuple[str, str | None, int]]:
    """Literal text and the expression after it (None at the end), with the offset of that expression's `${`."""
    literal: list[str] = []
    at = 0
    while (found := text.find("${", at)) >= 0:
        if text[found - 1 : found] == "$" and found > at:
            literal += text[at : found - 1], "${"
            at = found + 2
            continue
        end = _end(text, found)
        yield "".join([*literal, text[at:found]]), text[found + 2 : end], found
        literal, at = [], end + 1
    yield "".join([*literal, text[at:]]), None, len(text)


def _end(text: str, start: int) -> int:
    """Offset of the brace that closes the `${` at `start`: braces inside strings and comments do not count."""
    depth = 0
    for token in _TOKEN.finditer(text, start + 1):
        if token.lastgroup == "quote":
            raise InvalidExpressionError(ExpressionError("a string in the expression is not closed", token.start()))
        if token.lastgroup == "brace":
            depth += 1 if token[0] == "{" else -1
            if depth == 0:
                return token.start()
    raise InvalidExpressionError(
        ExpressionError("`${` is not closed", start, "add the `}`; write `$${` for a literal `${`")
    )
