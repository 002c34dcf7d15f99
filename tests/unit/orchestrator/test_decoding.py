"""Hostile bytes: what cannot be carried on is refused, and named."""

import json
from typing import Any

import pytest

from services.orchestrator.domain.decoding import MAX_DEPTH, UndecodableError, UnsafeValueError, check, decode


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "not JSON"),
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a": 1, "a": 2}', "same key twice"),
        (b'{"a": {"b": 1, "b": 2}}', "same key twice"),
        (b"[" * 200_000, "nested deeper"),
    ],
)
def test_what_is_no_json_object_is_undecodable(value: bytes | None, why: str) -> None:
    with pytest.raises(UndecodableError, match=why):
        decode(value)


def test_an_object_is_decoded() -> None:
    assert decode('{"a": ["é", 1.5, null]}'.encode()) == {"a": ["é", 1.5, None]}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        ({"input": {"x": float("nan")}}, "input.x", "not a finite number"),
        ({"input": [1, float("-inf")]}, r"input\[1\]", "not a finite number"),
        ({"input": {"q": "a\x00b"}}, "input.q", "NUL"),
        ({"input": {"q": "é\x00"}}, "input.q", "NUL"),
        ({"input": {"q": "\ud800"}}, "input.q", "lone surrogate"),
        ({"input": {"\ud800": 1}}, "input \\(a key\\)", "lone surrogate"),
        ({"\x00": 1}, "a key", "NUL"),
        ({"input": {"a secret": {"q-1": "\x00"}}}, r"input\.…\.q-1", "NUL"),
        ({"input": {"x" * 33: "\x00"}}, r"input\.…", "NUL"),
        ({"input": nested(200)}, "input", f"deeper than {MAX_DEPTH}"),
    ],
)
def test_a_value_that_cannot_be_carried_is_named_by_its_field(value: Any, path: str, why: str) -> None:
    with pytest.raises(UnsafeValueError, match=f"`{path}.*`.*{why}"):
        check(value)


def test_what_json_can_carry_passes() -> None:
    value = {"input": {"q": "é 😀 \n", "n": [1, 2.5, True, None], "deep": nested(MAX_DEPTH - 2)}}
    check(value)
    assert json.loads(json.dumps(value)) == value


def test_a_literal_nan_is_decoded_and_then_refused() -> None:
    with pytest.raises(UnsafeValueError, match=r"`input\.x`"):
        check(decode(b'{"input": {"x": NaN}}'))
