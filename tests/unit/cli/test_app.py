"""Every command ends with a result, or with one line on stderr and an exit code."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from headway.cli.app import app, run
from headway.cli.commands import doctor
from headway.cli.exits import CliError, Exit, expected
from headway.client import NoResponseError
from headway.plane.errors import PlaneError
from services.chassis.kafka.types import RecordTooLargeError

HEAVY = {"aiokafka", "faststream", "httpx", "pydantic", "rich", "structlog", "schemas.config"}
NOWHERE = ["--home", "/nonexistent/home"]


def commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


def all_commands() -> list[tuple[str, ...]]:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return list(commands(group))


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_KAFKA_BOOTSTRAP_SERVERS", raising=False)


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_the_help_of_every_command_has_an_example_of_it(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--help"]) == Exit.OK
    assert f"Example:\n    headway {' '.join(command)}" in capsys.readouterr().out


def test_the_commands_are_the_documented_ones() -> None:
    assert {" ".join(command) for command in all_commands()} == {
        "up", "demo", "serve", "worker", "submit", "top", "lag", "doctor", "init",
        "run show", "run watch", "run cancel",
        "topics list", "topics apply", "topics describe", "dlq list", "dlq show", "dlq replay", "dlq drop",
        "config validate", "config diff", "config apply", "config history", "config rollback",
        "pipelines list", "pipelines graph", "models list", "models try", "scale status", "scale explain",
    }  # fmt: skip


@pytest.mark.parametrize("group", [[], ["run"], ["config"]])
def test_without_a_command_the_help_is_shown(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(group) == Exit.USAGE
    assert capsys.readouterr().err.startswith("Usage: headway")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == Exit.OK
    assert capsys.readouterr().out == f"{version('headway')}\n"


def test_help_loads_nothing_heavy() -> None:
    script = "import sys; from headway.cli.app import run; run(['--help']); print(*sys.modules, sep=',')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.splitlines()[-1].split(","))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["bogus"], Exit.USAGE, "No such command 'bogus'"),
        (["submit"], Exit.USAGE, "headway submit --help"),
        (["submit", "ask", "--input", "{", *NOWHERE], Exit.USAGE, "--input: not JSON"),
        (["submit", "ask", "--input", "{}", "--deadline", "5", *NOWHERE], Exit.USAGE, "--deadline: not a duration"),
        (["submit", "ask", "--input", "{}", "--priority", "high"], Exit.USAGE, "'high' is not one of"),
        (["lag", *NOWHERE], Exit.UNREACHABLE, "start one with `headway up --home /nonexistent/home`"),
        (["run", "show", "x", *NOWHERE], Exit.UNREACHABLE, "no plane is up"),
        (["config", "validate", "/nonexistent"], Exit.USAGE, ""),
        (["config", "diff", "/nonexistent", *NOWHERE], Exit.USAGE, "cannot be used: 1 error"),
        (["up", "--config", "/nonexistent"], Exit.USAGE, "does not exist"),
        (["models", "try", "nope", "--input", "{}"], Exit.NOT_FOUND, "no model class nope"),
    ],
)
def test_an_error_is_one_line_and_a_code(
    arguments: list[str], code: Exit, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_a_setting_that_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWAY_KAFKA_BOOTSTRAP_SERVERS", "nonsense")
    assert run(["topics", "list", *NOWHERE]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("headway: HEADWAY_KAFKA_BOOTSTRAP_SERVERS")


def test_a_bug_is_one_line_that_names_a_file_with_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Path) -> list[object]:
        raise KeyError("a bug")

    monkeypatch.setattr(doctor, "_plane", broken)
    assert run(["doctor", *NOWHERE]) == Exit.UNEXPECTED
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("headway: unexpected KeyError: 'a bug'")
    file = re.search(r"details in (\S+\.log)", said)
    assert file
    assert "Traceback" in Path(file[1]).read_text(encoding="utf-8")
    Path(file[1]).unlink()


def test_interrupting_is_no_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: Path) -> list[object]:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "_plane", interrupted)
    assert run(["doctor", *NOWHERE]) == Exit.INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_errors_of_the_parts_have_codes_and_bugs_have_none() -> None:
    assert expected(CliError("x", Exit.NOT_FOUND)) is Exit.NOT_FOUND
    assert expected(PlaneError("x")) is Exit.PROBLEMS
    assert expected(NoResponseError("x")) is Exit.TIMED_OUT
    assert expected(RecordTooLargeError("x")) is Exit.UNREACHABLE
    assert expected(ValueError("x")) is None
