"""`python -m loadtest`: what it takes, and what it writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loadtest import __main__ as command

FIGURES = {"scenario": "fanout", "machine": {}, "completed": 3, "series": {"percentiles_ms": [[0, 1.0], [50, 2.0]]}}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure(*_: object) -> dict[str, Any]:
        return dict(FIGURES)

    monkeypatch.setattr(command, "_run", measure)


@pytest.mark.usefixtures("measured")
def test_figures_tell_how_to_measure_them_again(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    given = ["fanout", "--concurrency", "64", "--duration", "20s", "--repeats", "2", "--json", str(file)]
    result = CliRunner().invoke(command.app, given)
    assert result.exit_code == 0
    assert json.loads(file.read_text()) == {
        "command": "python -m loadtest fanout --concurrency 64 --repeats 2",
        **FIGURES,
    }
    assert "completed" in result.stdout
    assert "percentiles" not in result.stdout  # series are for plots


@pytest.mark.usefixtures("measured")
def test_a_report_is_written_beside(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert CliRunner().invoke(command.app, ["fanout", "--report", str(file)]).exit_code == 0
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("given", [["poison", "--repeats", "2"], ["fanout", "--duration", "soon"], ["nonsense"]])
def test_what_cannot_be_measured_is_refused(given: list[str]) -> None:
    assert CliRunner().invoke(command.app, given).exit_code == 2


def test_a_table_has_the_spread_beside_each_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure(*_: object) -> dict[str, Any]:
        return {**FIGURES, "spread": {"completed": [2, 4]}, "repeats": [{"completed": 2}, {"completed": 4}]}

    monkeypatch.setattr(command, "_run", measure)
    lines = CliRunner().invoke(command.app, ["fanout", "--repeats", "2"]).stdout.splitlines()
    (row,) = [line for line in lines if "completed" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["completed", "3", "2 – 4"]
