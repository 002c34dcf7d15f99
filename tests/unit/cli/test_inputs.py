"""What people hand in is read within bounds, and refused with the option's name."""

import io
import sys
from pathlib import Path

import pytest

from headway.cli.exits import CliError
from headway.cli.inputs import MAX_BYTES, milliseconds, read_object


def test_an_object_comes_from_the_argument_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"a": "é"}', encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 3}')))
    assert read_object('{"a": 1}') == {"a": 1}
    assert read_object(f"@{file}") == {"a": "é"}
    assert read_object("-") == {"a": 3}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "not JSON"),
        ("[1]", "must be a JSON object"),
        ('{"a": NaN}', "NaN is no JSON value"),
        ('{"a": -Infinity}', "-Infinity is no JSON value"),
        ("[" * 100_000, "not JSON"),
        ("@/nonexistent", "/nonexistent cannot be read: No such file"),
    ],
)
def test_anything_else_is_refused(given: str, words: str) -> None:
    with pytest.raises(CliError, match="--input") as error:
        read_object(given)
    assert words in str(error.value)


@pytest.mark.parametrize(("content", "words"), [(b"\xff", "not UTF-8"), (b" " * (MAX_BYTES + 1), "larger than")])
def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "in").write_bytes(content)
    with pytest.raises(CliError, match=words):
        read_object(f"@{tmp_path / 'in'}")


def test_a_duration_has_a_unit() -> None:
    assert milliseconds("1.5s", "--deadline") == 1_500
    assert milliseconds(None, "--deadline") is None
    with pytest.raises(CliError, match="--deadline: not a duration: '5'"):
        milliseconds("5", "--deadline")
