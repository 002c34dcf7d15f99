"""The JSON Schema of an input: what is refused at load, and what is said about inputs that break it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Json
from services.chassis.config.input_schema import InputValidator, schema_findings
from services.chassis.config.problems import Severity

SECRET = "my-secret-question"


def messages(schema: dict[str, Json]) -> list[str]:
    return [finding.message for finding in schema_findings(schema)]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "required": ["q"], "properties": {"q": {"type": ["string", "null"], "minLength": 1}}},
        {"$defs": {"p": {"type": "object", "properties": {"child": {"$ref": "#/$defs/p"}}}}, "$ref": "#/$defs/p"},
        {"properties": {"child": {"$ref": "#"}, "definitions": {"const": {"$ref": "x"}}}},
        {"$defs": {"p": {"$anchor": "person"}}, "properties": {"a": {"$ref": "#person"}}},
        {"allOf": [{"if": {"required": ["a"]}, "then": {"minProperties": 2}}], "x-note": "anything"},
        {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
        {"properties": {"a": True}},
    ],
)
def test_a_good_schema_has_no_findings(schema: dict[str, Json]) -> None:
    assert messages(schema) == []


@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        ({"type": "objekt"}, ("type",), "`type` cannot be `objekt`"),
        ({"required": "q"}, ("required",), "`required` must be of type array"),
        ({"properties": {"a": 1}}, ("properties", "a"), "`a` must be of type object or of type boolean"),
        ({"minLength": -1}, ("minLength",), "`minLength` is not what JSON Schema wants: -1 is less than the minimum"),
        ({"$ref": "#/$defs/x"}, ("$ref",), "`#/$defs/x` refers to nothing"),
        ({"$ref": "#nowhere"}, ("$ref",), "`#nowhere` refers to nothing"),
        ({"$ref": "other.json"}, ("$ref",), "`other.json` refers to another document"),
        ({"items": {"$dynamicRef": "http://x/#y"}}, ("items", "$dynamicRef"), "`http://x/#y` refers to another"),
        ({"allOf": [{}, {"pattern": "("}]}, ("allOf", 1, "pattern"), "`(` is no regular expression: missing )"),
        ({"patternProperties": {"[": {}}}, ("patternProperties", "["), "`[` is no regular expression"),
        ({"$ref": "#"}, (), "the schema refers to itself without end"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}}, (), "the schema refers to"),
    ],
)  # fmt: skip
def test_a_broken_schema_is_found(schema: dict[str, Json], path: tuple[str | int, ...], message: str) -> None:
    (finding,) = schema_findings(schema)
    assert finding.path == path
    assert finding.message.startswith(message)
    assert finding.severity is Severity.ERROR


def test_a_keyword_that_is_nearly_one_is_a_warning() -> None:
    (finding,) = schema_findings({"properties": {"requird": {"maxLenght": 3}}})
    assert finding.severity is Severity.WARNING
    assert (finding.path, finding.hint) == (("properties", "requird", "maxLenght"), "did you mean `maxLength`?")


@pytest.mark.parametrize(
    ("schema", "value", "error"),
    [
        ({"type": "object"}, {}, None),
        ({"type": "object"}, [SECRET], "`input` must be of type object"),
        ({"type": ["object", "null"]}, SECRET, "`input` must be of type object or of type null"),
        ({"required": ["a", "q"]}, {"a": SECRET}, "`input` lacks the field `q`"),
        ({"properties": {"q": {"type": "string"}}}, {"q": 7}, "`input.q` must be of type string"),
        ({"properties": {"q": {"maxLength": 3}}}, {"q": SECRET}, "`input.q` must have at most 3 characters"),
        ({"properties": {"q": {"minLength": 30}}}, {"q": SECRET}, "`input.q` must have at least 30 characters"),
        ({"properties": {"q": {"pattern": "^a"}}}, {"q": SECRET}, '`input.q` must match the pattern "^a"'),
        ({"properties": {"q": {"enum": ["a", 1]}}}, {"q": SECRET}, '`input.q` must be one of ["a", 1]'),
        ({"properties": {"q": {"const": "a"}}}, {"q": SECRET}, '`input.q` must be "a"'),
        ({"properties": {"n": {"minimum": 3}}}, {"n": 1}, "`input.n` must be at least 3"),
        ({"properties": {"n": {"exclusiveMaximum": 3}}}, {"n": 9}, "`input.n` must be less than 3"),
        ({"properties": {"l": {"items": {"type": "string"}}}}, {"l": ["a", 7]}, "`input.l[1]` must be of type"),
        ({"properties": {"l": {"maxItems": 1}}}, {"l": [SECRET, 2]}, "`input.l` must have at most 1 elements"),
        ({"properties": {"l": {"uniqueItems": True}}}, {"l": [SECRET] * 2}, "`input.l` must not hold the same"),
        ({"additionalProperties": False}, {SECRET: 1}, "`input` has a field that is not allowed; it can have none"),
        (
            {"additionalProperties": False, "properties": {"a": {}, "b": {}}}, {SECRET: 1},
            "`input` has a field that is not allowed; it can have `a`, `b`",
        ),
        ({"unevaluatedProperties": False}, {SECRET: 1}, "`input` has a field that is not allowed"),
        ({"additionalProperties": {"type": "string"}}, {"a b " + SECRET: 1}, "`input.…` must be of type string"),
        ({"anyOf": [{"type": "null"}, {"type": "array"}]}, {"a": SECRET}, "`input` has none of the allowed forms"),
        ({"oneOf": [{}, {}]}, {"a": SECRET}, "`input` must have exactly one of the allowed forms"),
        ({"properties": {"q": False}}, {"q": SECRET}, "`input` holds a field that is not allowed"),
        ({"not": {}}, {"q": SECRET}, "`input` does not satisfy `not`"),
    ],
)  # fmt: skip
def test_an_error_names_the_field_and_never_its_value(
    schema: dict[str, Json], value: Json, error: str | None
) -> None:
    found = InputValidator(schema).error(value)
    assert (found or "").startswith(error or "")
    assert (found is None) == (error is None)
    assert SECRET not in (found or "")


def test_an_input_too_deep_to_be_checked_is_refused() -> None:
    value: Any = {}
    for _ in range(2_000):
        value = {"child": value}
    schema = {"properties": {"child": {"$ref": "#"}}}
    assert InputValidator(schema).error(value) == "`input` is nested too deeply to be checked"


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda c: (
            st.lists(c, max_size=3)
            | st.dictionaries(st.sampled_from(["type", "properties", "$ref", "items", "pattern", "enum", "allOf"]), c)
        ),
        max_leaves=8,
    ).filter(lambda value: isinstance(value, dict))
)
def test_any_object_is_a_schema_or_has_findings(schema: dict[str, Json]) -> None:
    if not [finding for finding in schema_findings(schema) if finding.severity is Severity.ERROR]:
        InputValidator(schema).error({"a": [1]})
