"""The command prints what was published beside ours, and ends with 1 where a promise is broken."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from loadtest.__main__ import app
from loadtest.report.plots import plots
from loadtest.virtual import command
from loadtest.virtual.verdicts import verdicts

CASCADE = {
    "sequential_s": 185.0,
    "prewarmed_s": 151.0,
    "slowest_load_s": 150.0,
    "without_llm_prewarmed_s": 30.9,
    "without_llm_slowest_load_s": 30.0,
    "standby_s": 16.0,
    "standby_cost_share": 0.1,
}


def kept(**parts: dict[str, Any]) -> list[bool]:
    return [verdict.kept for verdict in verdicts(parts)]


def test_the_cascade_of_the_paper_is_pre_warmed_within_its_slowest_load(tmp_path: Path) -> None:
    file = tmp_path / "simulate.json"
    result = CliRunner().invoke(app, ["simulate", "--part", "cascade", "--json", str(file)])
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    assert found["cascade"]["sequential_s"] == pytest.approx(180.0, rel=0.05), "the model of it is the published one"
    assert found["cascade"]["prewarmed_s"] <= 157.5
    assert found["cascade"]["without_llm_prewarmed_s"] <= 31.5
    assert found["cascade"]["standby_s"] <= 18.0
    assert found["broken"] == []


SERIES = {
    "hour": [0.0, 12.0],
    "requests_per_s": [1.0, 9.0],
    "replicas": [{"llm": 1}, {"llm": 9}],
    "p50_s": [None, 2.0],
    "p99_s": [None, 3.0],
}


def test_a_day_and_what_was_published_are_drawn() -> None:
    burst = {"by_class": {"code": {"peak_ratio": 2.6}}}
    figures = {"cascade": CASCADE, "hybrid": {"saving_share": 0.43}, "burst": burst, "day": {"series": SERIES}}
    drawn = {plot.title: plot.svg for plot in plots(figures)}
    assert set(drawn) == {"Published, and ours", "A day's load and its workers"}
    for words in ("pre-warmed", "65 s", "151 s", "15–20 %", "43%", "code workers", "2–3", "2.6"):
        assert f">{words}<" in drawn["Published, and ours"]
    assert "standby tier" not in drawn["Published, and ours"], "it was not measured"
    assert ">llm<" in drawn["A day's load and its workers"]


def test_pictures_are_files_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(command.PARTS, "cascade", lambda _: CASCADE)
    result = CliRunner().invoke(app, ["simulate", "--part", "cascade", "--pictures", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (file,) = tmp_path.iterdir()
    assert file.name == "scaling-published.svg"
    assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_broken_promise_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command.PARTS, "cascade", lambda seed: CASCADE | {"standby_s": 18.5 + seed})
    result = CliRunner().invoke(app, ["simulate", "--part", "cascade"])
    assert result.exit_code == 1
    assert "BROKEN" in result.output


def test_a_part_that_there_is_not_is_refused() -> None:
    assert CliRunner().invoke(app, ["simulate", "--part", "weather"]).exit_code == 2


@pytest.mark.parametrize(
    ("changed", "places"),
    [
        ({}, []),
        ({"prewarmed_s": 157.6}, [1]),
        ({"without_llm_prewarmed_s": 31.6}, [2]),
        ({"standby_s": 18.1}, [3]),
    ],
)
def test_what_the_cascade_promises(changed: dict[str, float], places: list[int]) -> None:
    assert [place for place, fine in enumerate(kept(cascade=CASCADE | changed)) if not fine] == places


def test_what_the_other_parts_promise() -> None:
    assert kept(tiers={"standby": {"0.1": {"removed_share": 0.8, "cost_share": 0.15}}}) == [True]
    assert kept(tiers={"standby": {"0.1": {"removed_share": 0.9, "cost_share": 0.16}}}) == [False]
    assert kept(tiers={"standby": {"0.1": {"removed_share": 0.79, "cost_share": 0.15}}}) == [False]
    assert kept(tiers={"standby": {"0.2": {"removed_share": 0.5, "cost_share": 0.15}}}) == [True], "shown only"
    assert kept(predictive={"removed_share": 0.94, "over_provision": 0.06}) == [False, False]
    fleets = {"own": {"p95_s": 8.0}, "hybrid": {"p95_s": 8.0}}
    assert kept(hybrid={"saving_share": 0.2, **fleets}) == [True]
    assert kept(hybrid={"saving_share": 0.19, **fleets}) == [False]
    assert kept(hybrid={"saving_share": 0.2, **fleets, "own": {"p95_s": 8.1}}) == [False], "it is not as quick"
    assert kept(ahead={"false_share": 0.3}) == [True]


@pytest.mark.parametrize(
    ("of_rate", "back", "fine"), [(1.1, 2.0, True), (1.11, 1.0, False), (0.89, 1.0, False), (1.0, None, False)]
)
def test_what_a_burst_promises_each_class(of_rate: float, back: float | None, fine: bool) -> None:
    each = {"peak_ratio": 10.0, "of_rate": of_rate, "back_to_base_cooldowns": back}
    assert kept(burst={"times": 10, "by_class": {"embedding": each}}) == [fine]
