"""YAML without its surprises, and the line of everything."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from services.chassis.config.yaml_source import MAX_BYTES, read_yaml


def value_of(text: str) -> Any:
    source = read_yaml("file.yaml", text.encode())
    assert source.problems == []
    return source.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"),
        ("true", True), ("False", False), ("null", None), ("~", None), ("''", ""),
        ("12", 12), ("-7", -7), ("+7", 7), ("0x1f", 31), ("0o17", 15), ("017", 17),
        ("1:30", "1:30"), ("2001-01-01", "2001-01-01"), ("1_000", "1_000"), (".nan", ".nan"), (".inf", ".inf"),
        ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("-1.", -1.0), ("1.2.3", "1.2.3"), ("'12'", "12"),
        ("9223372036854775807", 2**63 - 1),
        ("[a, {b: c}]", ["a", {"b": "c"}]), ("", None), ("# a comment", None),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("\ufeffa: é😀", {"a": "é😀"}),
    ],
)  # fmt: skip
def test_types_are_those_of_yaml_1_2(text: str, value: object) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


TEXT = """\
name: ask
steps:
  - id: one
    input:
      literal: |
        first ${x}
        second ${y}
      folded: >-
        a
        b
      quoted: "c ${z}"
  - {id: two, after: [one, two]}
"""


@pytest.mark.parametrize(
    ("path", "offset", "line"),
    [
        ((), 0, 1),
        (("name",), 0, 1),
        (("steps",), 0, 2),
        (("steps", 0), 0, 3),
        (("steps", 0, "input", "literal"), 0, 5),
        (("steps", 0, "input", "literal"), 6, 6),
        (("steps", 0, "input", "literal"), 18, 7),
        (("steps", 0, "input", "folded"), 2, 9),
        (("steps", 0, "input", "quoted"), 2, 11),
        (("steps", 1), 0, 12),
        (("steps", 1, "after", 1), 0, 12),
        (("steps", 0, "tag", "input", "missing"), 0, 4),
        (("steps", 0, "missing"), 7, 3),
        (("nowhere", "at", "all"), 0, 1),
    ],
)
def test_every_key_has_its_line(path: tuple[str | int, ...], offset: int, line: int) -> None:
    assert read_yaml("file.yaml", TEXT.encode()).line(path, offset) == line


def test_a_file_that_could_not_be_read_still_has_a_first_line() -> None:
    assert read_yaml("file.yaml", b"[").line(("a",)) == 1


def bomb(levels: int) -> str:
    lines = ["l0: &l0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (bomb(9).encode(), None, "more than 50,000 values, aliases expanded"),
        (b"a: &a [*a]", 1, "nested too deeply"),
        (b"[" * 900 + b"]" * 900, 1, "nested too deeply"),
        (b"[" * 5_000, 1, "not YAML: exceeded maximum nesting depth"),
        (b"x" * (MAX_BYTES + 1), 1, "the file has 1,048,577 bytes; at most 1,048,576 are read"),
        (b"a: 1\nb: \xff", 2, "not UTF-8"),
        ("a: 1\nb: \ufffe".encode(), 2, "a control character"),
        (b"a: 1\n? [b]\n: 2", 2, "a list or object is no text, but a key must be"),
        (b"a: 1\n? \n: 2", 2, "`` is no text, but a key must be"),
        (b"a: 1\ntrue: 2", 2, "`true` is no text, but a key must be"),
        (b"a: 1\nb: !x y", 2, "the tag `!x` is not supported"),
        (b"a: !!set {b}", 1, "the tag `!!set` is not supported"),
        (b"a: !!omap [b: 1]", 1, "the tag `!!omap` is not supported"),
        (b"a: 1\nb: " + b"9" * 5_000, 2, "a whole number that does not fit 64 bits"),
        (b"a: 9223372036854775808", 1, "a whole number that does not fit 64 bits"),
        (b"%YAML 9.9\n---\na: 1", 1, "not YAML: found incompatible YAML document"),
        (b"a:\r  - b\rc: [", 3, "a quote or bracket is not closed"),
        (b"a: [b,\nc: d\n", 1, "a quote or bracket is not closed"),
        (b"- a\nb", 2, "not YAML: could not find expected ':'"),
        (b"a: *", 1, "not YAML: did not find expected alphabetic or numeric character"),
    ],
)
def test_what_is_not_plain_yaml_is_a_problem(content: bytes, line: int | None, message: str) -> None:
    (problem,) = read_yaml("file.yaml", content).problems
    assert problem.message == message
    assert problem.file == "file.yaml"
    assert line is None or problem.line == line


def test_several_problems_are_found_in_one_file() -> None:
    source = read_yaml("file.yaml", b"a: 1\na: 2\n1: x\nb: !t z\n")
    assert [problem.line for problem in source.problems] == [2, 3, 4]
    assert source.value["a"] == 1


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=15,
)  # fmt: skip


@settings(deadline=None)
@given(_json)
def test_json_is_yaml(value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, default_style='"')
    source = read_yaml("file.yaml", text.encode("utf-8", "replace"))
    if not source.problems:
        assert _texts(source.value) == _texts(yaml.safe_load(text.encode("utf-8", "replace")))


def _texts(value: Any) -> Any:
    """Without the types that the two versions of YAML see differently."""
    if isinstance(value, dict):
        return {key: _texts(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_texts(child) for child in value]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@settings(deadline=None)
@given(st.binary() | st.text(alphabet=" \n\t:-[]{},&*!|>'\"%@`#ab1.~?<", max_size=60).map(str.encode))
def test_any_bytes_are_a_value_or_a_problem(content: bytes) -> None:
    source = read_yaml("file.yaml", content)
    for problem in source.problems:
        assert problem.line is not None
        assert problem.line >= 1
        assert "\n" not in problem.message
