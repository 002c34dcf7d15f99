"""The JSON Schema of a pipeline's input: checked when it is loaded, compiled once, and its errors repeat no value."""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from schemas.base import Json
from services.chassis.config.problems import Finding, Path, Severity
from services.chassis.expressions.errors import did_you_mean

_SCHEMA = ("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
           "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_OTHER = (
    "$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$ref", "$schema", "$vocabulary", "const",
    "contentEncoding", "contentMediaType", "default", "dependentRequired", "deprecated", "description", "enum",
    "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "maxContains", "maxItems", "maxLength",
    "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf",
    "pattern", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly",
)  # fmt: skip
_KEYWORDS = frozenset((*_SCHEMA, *_SCHEMAS, *_NAMED_SCHEMAS, *_OTHER))
_META = Draft202012Validator(Draft202012Validator.META_SCHEMA)
_WORD = re.compile(r"[\w-]{1,64}")


def schema_findings(schema: dict[str, Json]) -> Iterator[Finding]:
    """Everything that is wrong with a schema, at paths within it."""
    broken = list(dict.fromkeys(_schema_finding(error) for error in _META.iter_errors(schema)))
    yield from broken
    for path, part in _parts(schema, ()):
        yield from _part_findings(schema, path, part)
    if not broken and _is_endless(schema):
        yield Finding(
            (), "the schema refers to itself without end", "a `$ref` to itself must stand below `properties`"
        )


def _schema_finding(error: ValidationError) -> Finding:
    path: Path = tuple(error.absolute_path)
    name = path[-1] if path else "input"
    value = error.validator_value
    if error.validator in ("enum", "anyOf") and isinstance(error.instance, str):
        return Finding(path, f"`{name}` cannot be `{error.instance[:60]}`", did_you_mean(error.instance, _TYPES))
    if error.validator == "type":
        return Finding(path, f"`{name}` must be {_type(value)}")
    return Finding(path, f"`{name}` is not what JSON Schema wants: {error.message[:200]}")


_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def _parts(schema: dict[str, Json], path: Path) -> Iterator[tuple[Path, dict[str, Json]]]:
    """The schema and every schema inside it."""
    yield path, schema
    for key, value in schema.items():
        for where, part in _children(key, value):
            if isinstance(part, dict):
                yield from _parts(part, (*path, key, *where))


def _children(key: str, value: Json) -> Iterator[tuple[Path, Json]]:
    if key in _SCHEMA:
        yield (), value
    elif key in _SCHEMAS and isinstance(value, list):
        for index, part in enumerate(value):
            yield (index,), part
    elif key in _NAMED_SCHEMAS and isinstance(value, dict):
        for name, part in value.items():
            yield (name,), part


def _part_findings(root: dict[str, Json], path: Path, part: dict[str, Json]) -> Iterator[Finding]:
    for key in ("$ref", "$dynamicRef"):
        if isinstance(part.get(key), str) and (wrong := _reference_error(root, part[key])):
            yield Finding((*path, key), *wrong)
    patterns = [((*path, "pattern"), part["pattern"])] if isinstance(part.get("pattern"), str) else []
    if isinstance(part.get("patternProperties"), dict):
        patterns += [((*path, "patternProperties", name), name) for name in part["patternProperties"]]
    for where, pattern in patterns:
        if wrong_pattern := _pattern_error(pattern):
            yield Finding(where, f"`{pattern[:60]}` is no regular expression: {wrong_pattern}")
    for key in part:
        near = get_close_matches(key, _KEYWORDS, n=1, cutoff=0.8)
        if near and key not in _KEYWORDS:
            message, hint = f"JSON Schema has no `{key}`: it checks nothing", f"did you mean `{near[0]}`?"
            yield Finding((*path, key), message, hint, Severity.WARNING)


def _reference_error(root: dict[str, Json], reference: str) -> tuple[str, str] | None:
    if not reference.startswith("#"):
        return f"`{reference[:60]}` refers to another document", "put it under `$defs` and write `#/$defs/<name>`"
    resource = Resource.from_contents(root, default_specification=DRAFT202012)
    try:
        Registry().with_resource("", resource).resolver().lookup(reference)
    except Unresolvable:
        return f"`{reference[:60]}` refers to nothing", "write `#/$defs/<name>`"
    return None


def _pattern_error(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return str(error)
    return None


def _is_endless(schema: dict[str, Json]) -> bool:
    try:
        Draft202012Validator(schema).is_valid({})
    except RecursionError:
        return True
    except Unresolvable:
        return False  # found by its reference
    return False


class InputValidator:
    """A compiled schema."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._validator = Draft202012Validator(dict(schema))

    def error(self, value: Json) -> str | None:
        """The first thing that is wrong with an input, with its path; nothing of the input but names of fields."""
        try:
            found = next(self._validator.iter_errors(value), None)
        except RecursionError:
            return "`input` is nested too deeply to be checked"
        return None if found is None else f"`{_json_path(found)}` {_complaint(found)}"


def _json_path(error: ValidationError) -> str:
    """`input.items[3].name`; a name that is no plain word is left out: it may be a secret as much as a value."""
    text = "input"
    for part in error.absolute_path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if _WORD.fullmatch(part) else ".…"
    return text


def _type(value: Any) -> str:
    names = [value] if isinstance(value, str) else value
    return " or ".join(f"of type {name}" for name in names)


_COMPLAINTS = {
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minItems": "must have at least {} elements",
    "maxItems": "must have at most {} elements",
    "minProperties": "must have at least {} fields",
    "maxProperties": "must have at most {} fields",
    "pattern": "must match the pattern {}",
    "enum": "must be one of {}",
    "const": "must be {}",
    "anyOf": "has none of the allowed forms",
    "oneOf": "must have exactly one of the allowed forms",
    "uniqueItems": "must not hold the same element twice",
}


def _complaint(error: ValidationError) -> str:
    """What the schema wants: its words are the operator's, the input's are not repeated."""
    wanted: Any = error.validator_value
    match error.validator:
        case "type":
            return f"must be {_type(wanted)}"
        case "required":
            present: Any = error.instance
            return f"lacks the field `{next(name for name in wanted if name not in present)}`"
        case "additionalProperties" | "unevaluatedProperties":
            known: Any = error.schema
            names = ", ".join(f"`{name}`" for name in known.get("properties", {}))
            return f"has a field that is not allowed; it can have {names or 'none'}"[:400]
        case None:
            return "holds a field that is not allowed"
    complaint = _COMPLAINTS.get(str(error.validator), f"does not satisfy `{error.validator}`")
    return complaint.format(json.dumps(wanted, ensure_ascii=False)[:200])
