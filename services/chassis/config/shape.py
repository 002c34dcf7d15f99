"""Whether a document has the shape of its model: pydantic's errors in the words of who wrote the file."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from schemas.base import Json
from services.chassis.config.problems import Finding, Path
from services.chassis.expressions.errors import did_you_mean

_PATTERNS = {
    r"^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$": "a name: lower-case letters, digits and dashes, at most 48",
    r"^[A-Za-z_][A-Za-z0-9_]{0,63}$": "an identifier: letters, digits and underscores, not first a digit, at most 64",
    r"^[\w.]+:\w+$": "a function: write it as `module:function`",
    r"^[A-Z][A-Z0-9_]*$": "the name of an environment variable, like LLM_API_KEY",
    r"^https?://[^\s@]+$": "an http(s) URL without credentials",
    r"^[a-z0-9][a-z0-9.-]{0,199}$": "a topic: lower-case letters, digits, dots and dashes",
    r"^[a-z][a-z0-9-]{0,31}$": "a label: lower-case letters, digits and dashes, at most 32",
}


def shape_findings(kind: Any, value: Json) -> Iterator[Finding]:
    """Every way in which `value` is not a `kind` (a type that pydantic can check)."""
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False)
        for detail in details:
            if not _is_consequence(detail, details):
                yield _finding(kind, detail)


def _is_consequence(detail: ErrorDetails, details: list[ErrorDetails]) -> bool:
    """A list whose elements are all wrong also is too short for pydantic."""
    depth = len(detail["loc"])
    return detail["type"] == "too_short" and any(
        other["loc"][:depth] == detail["loc"] for other in details if other is not detail
    )


def _finding(kind: Any, detail: ErrorDetails) -> Finding:
    path: Path = tuple(part for part in detail["loc"] if part != "[key]")
    name = next((str(part) for part in reversed(path) if isinstance(part, str)), "the file")
    message, hint = _words(kind, path, name, detail)
    return Finding(path, message, hint)


def _words(kind: Any, path: Path, name: str, detail: ErrorDetails) -> tuple[str, str]:
    """Message and hint."""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown key `{name}`", did_you_mean(name, _fields(kind, path[:-1]))
        case "value_error":
            return str(context["error"]), ""
        case "string_pattern_mismatch":
            return f"`{name}` is not {_PATTERNS[context['pattern']]}", ""
        case "enum" | "literal_error":
            return _choice(name, str(detail["input"]), context["expected"])
        case "union_tag_invalid":
            return _choice("kind", context["tag"], context["expected_tags"])
    message = _PLAIN.get(detail["type"]) or detail["msg"].replace("Input should", "must")
    unit = " ms" if detail["type"] in _BOUNDS and isinstance(detail["input"], str) else ""
    return f"`{name}` {message}{unit}", ""


_PLAIN = {
    "missing": "is missing",
    "union_tag_not_found": "has no `kind`",
    "model_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values",
    "dict_type": "must hold keys and values",
    "tuple_type": "must be a list",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "too_short": "is empty",
}


_BOUNDS = ("less_than_equal", "less_than", "greater_than_equal", "greater_than")
"""Of what was written as a text, a duration has bounds."""


def _choice(name: str, given: str, expected: str) -> tuple[str, str]:
    known = expected.replace("'", "").replace(" or ", ", ").split(", ")
    return f"`{name}` cannot be `{given[:60]}`", did_you_mean(given, known)


def _fields(kind: Any, path: Path) -> set[str]:
    """Names of the fields that may stand at `path`: of every model that can be there."""
    models = _models(kind)
    for part in path:
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        if fields:
            models = {found for field in fields for found in _models(field.annotation)}
    return {name for model in models for name in model.model_fields}


def _models(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for argument in get_args(annotation) for model in _models(argument)}
