"""All scenarios after one another."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from loadtest import bench
from loadtest.__main__ import SCENARIOS


def test_every_run_is_of_a_scenario_that_exists() -> None:
    assert {run[0] for run in bench.RUNS} <= SCENARIOS.keys()


def test_one_that_fails_does_not_keep_the_others_from_being_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(arguments: Sequence[str]) -> bool:
        name, file = arguments[0], Path(arguments[-1])
        if name != "peers":  # which does not come to figures
            file.write_text(json.dumps({"scenario": name}))
        return name not in ("peers", "isolation")

    monkeypatch.setattr(bench, "RUNS", (("floor",), ("peers",), ("isolation", "--duration", "1s"), ("burst",)))
    monkeypatch.setattr(bench, "_succeeds", measure)
    (tmp_path / "02-peers.json").write_text('{"scenario": "peers of another day"}')
    runs, failed = bench.bench(tmp_path)
    assert [run["scenario"] for run in runs] == ["floor", "isolation", "burst"]
    assert failed == ["peers", "isolation --duration 1s"]
