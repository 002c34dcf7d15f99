"""What the CEL library says, as one clear line. Nothing of the data an expression read is ever repeated."""

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches

MAX_QUOTED = 60


class ExpressionError(Exception):
    """An expression that cannot be compiled or evaluated: one line."""

    def __init__(self, message: str, position: int = 0, hint: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        """Offset in the string that holds the expression, in characters."""
        self.hint = hint
        """What to write instead; perhaps empty."""
        self.path = path
        """Where that string stands in the template: keys and indices."""

    def at(self, offset: int, path: tuple[str | int, ...]) -> "ExpressionError":
        """The same error, seen from the template that holds the expression."""
        return ExpressionError(self.message, self.position + offset, self.hint, path + self.path)


def quoted(text: str) -> str:
    """Source text inside a message: one line, short."""
    line = " ".join(text.split())
    return f"`{line if len(line) <= MAX_QUOTED else line[: MAX_QUOTED - 1] + '…'}`"


def did_you_mean(word: str, words: Collection[str], form: str = "{}") -> str:
    """A hint naming the nearest of `words`, else all of a few, else nothing."""
    near = get_close_matches(word, words, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{form.format(near[0])}`?"
    if not words or len(words) > 12:
        return ""
    return "known: " + ", ".join(f"`{form.format(known)}`" for known in sorted(set(words)))


# ---- at load ----

_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_TOO_DEEP = re.compile(r"recursion (limit|depth)", re.IGNORECASE)
_UNDECLARED = re.compile(r"undeclared reference to '(.*?)'")
_OVERLOAD = re.compile(r"found no matching overload for '(.*?)' applied to '(.*?)'")
_SYNTAX = re.compile(r"Syntax error: .*?(?:at input|mismatched input|extraneous input|error at:|at) '(.*?)'")


def compile_errors(said: str, source: str, steps: Collection[str]) -> Iterator[ExpressionError]:
    """The library's report about `source`, as errors; one for each place, one for a broken syntax."""
    if _TOO_DEEP.search(said):
        yield ExpressionError(
            "nested or chained too deeply: an expression has at most 32 levels",
            hint="move parts of it into `value` steps",
        )
        return
    broken = False
    for line, column, message in _ERROR.findall(said):
        syntax = message.startswith("Syntax error")
        if (syntax and broken) or "'*error*'" in message:
            continue
        broken = broken or syntax
        yield _compile_error(message, _offset(source, int(line), int(column)), source, steps)


def _offset(source: str, line: int, column: int) -> int:
    before = source.splitlines(keepends=True)[: max(line - 1, 0)]
    return sum(map(len, before)) + max(column - 1, 0)


def _compile_error(message: str, offset: int, source: str, steps: Collection[str]) -> ExpressionError:
    if found := _UNDECLARED.match(message):
        return _undeclared(found[1], offset, source, steps)
    if found := _OVERLOAD.match(message):
        return ExpressionError(f"`{_operator(found[1])}` cannot take {found[2]}", offset)
    if found := _SYNTAX.match(message):
        if found[1] == "<EOF>":
            return ExpressionError("syntax error: the expression ends too early", offset)
        return ExpressionError(f"syntax error at {quoted(found[1])}", offset)
    return ExpressionError(message.partition(" (in container")[0], offset)


def _operator(name: str) -> str:
    """`_+_` → `+`, `@in` → `in`, `_?_:_` → `? :`; a function's name as it is."""
    return " ".join(name.strip("_@").split("_")) if name[:1] in "_@!" else name


def _undeclared(name: str, offset: int, source: str, steps: Collection[str]) -> ExpressionError:
    offset = _start(name, offset, source)
    scope, _, rest = name.partition(".")
    if scope == "steps":
        step = rest.split(".")[0]
        if not step:
            return ExpressionError("`steps` alone is no value", offset, "write steps.<id>, like steps.embed")
        return ExpressionError(f"unknown step `{step}`", offset, did_you_mean(step, steps, "steps.{}"))
    if scope in steps:
        return ExpressionError(f"unknown name `{scope}`", offset, f"did you mean `steps.{scope}`?")
    known = "an expression knows `input`, `steps.<id>` and the functions of CEL"
    return ExpressionError(f"unknown name `{name}`", offset, known)


def _start(name: str, offset: int, source: str) -> int:
    """The library points at the last dot, or at the parenthesis of a call around the name."""
    before = offset - len(name.rpartition(".")[0] or name)
    if before >= 0 and source.startswith(name, before):
        return before
    after = source.find(name, offset)
    return offset if after < 0 else after


# ---- while a run is under way ----

_MISSING = re.compile(r'Key not found in map : "(\w+)"$')
_OVERLOADS = re.compile(r"No matching overloads found : ([^<\s].*?)(?: \[|$)")
_IN_PLAIN_WORDS = {
    "Applying SELECT to non-message type": "it reads a field of something that is no object",
    "Invalid container type": "it indexes something that is neither a list nor an object",
    "Index error": "it indexes a list where there is no element",
    "optional.none() dereference": "it takes the value of an empty optional",
    "<jump_condition>": "a condition is neither true nor false",
    "<iter_range>": "it loops over something that is neither a list nor an object",
    "Iteration budget exceeded": "its loops go around more than 10,000 times",
    "divide by zero": "it divides by zero",
    "modulus by zero": "it divides by zero",
    "integer overflow": "a whole number leaves 64 bits",
}


def evaluation_message(said: str, source: str) -> str:
    """Why an evaluation failed. The library's words may quote data: only those known to be harmless pass."""
    missing = _MISSING.search(said)
    if missing and re.search(rf"\b{missing[1]}\b", source):
        return f"there is no field `{missing[1]}`"
    for words, plain in _IN_PLAIN_WORDS.items():
        if words in said:
            return plain
    if found := _OVERLOADS.search(said):
        name, parenthesis, types = found[1].partition("(")
        return f"the types do not fit: {_operator(name)}{parenthesis}{types}"
    return "it cannot be evaluated on these values"
