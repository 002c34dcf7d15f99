"""What is printed is harmless, and readable by the program that asked for JSON."""

import json
from dataclasses import dataclass

import pytest

from headway.cli.output import cell, dollars, duration, line, print_rows, safe


@dataclass(frozen=True)
class Row:
    name: str
    tasks_behind: int | None


@pytest.mark.parametrize("hostile", ["\x1b[31m", "\x00", "\x9b2J", "\r", "\u202e", "\ud800", "\u2028"])
def test_what_could_act_on_a_terminal_is_escaped(hostile: str) -> None:
    shown = safe(f"a{hostile}b")
    assert shown.startswith("a\\")
    assert shown.encode().decode() == shown


def test_long_text_is_cut_and_says_how_long_it_was() -> None:
    assert safe("x" * 50, limit=10) == "x" * 10 + "… (50 characters)"


def test_a_line_is_one_line() -> None:
    assert line("a\n b\tc") == "a b c"


def test_unknown_is_never_zero(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([Row("llm", None), Row("embedding", 0)], as_json=False, empty="")
    header, llm, embedding = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "tasks", "behind"]
    assert llm.split() == ["llm", "–"]
    assert embedding.split() == ["embedding", "0"]


def test_json_of_a_table_is_a_list_even_when_it_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([Row("a\x1b", None)], as_json=True, empty="nothing")
    assert json.loads(capsys.readouterr().out) == [{"name": "a\x1b", "tasks_behind": None}]
    print_rows([], as_json=True, empty="nothing")
    assert json.loads(capsys.readouterr().out) == []


def test_an_empty_table_is_said_beside_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], as_json=False, empty="no dead letters")
    assert capsys.readouterr() == ("", "no dead letters\n")


def test_values_are_shown_as_people_write_them() -> None:
    assert [cell(value) for value in (True, 1234, 0.25, ("a", "b"), {"x": 1})] == [
        "yes",
        "1,234",
        "0.2",
        "a, b",
        "x=1",
    ]
    assert [duration(ms) for ms in (0.01, 0.44, 812.4, 1_240, 125_000)] == [
        "0 ms",
        "0.4 ms",
        "812 ms",
        "1.24 s",
        "2 min 05 s",
    ]
    assert [dollars(sum_) for sum_ in (0.0000002, 0.000021, 2.5)] == ["<$0.000001", "$0.000021", "$2.50"]
