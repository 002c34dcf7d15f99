"""The shared cache of Kafka's jars."""

from pathlib import Path

from headway.plane.jars import KAFKA_VERSION, cache_folder, cached_classpath


def test_the_cache_follows_the_users_cache_folder(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "headway" / f"kafka-{KAFKA_VERSION}"
    assert cache_folder({}) == Path.home() / ".cache" / "headway" / f"kafka-{KAFKA_VERSION}"


def test_a_folder_without_a_list_is_not_filled(tmp_path: Path) -> None:
    (tmp_path / "kafka.jar").write_text("")
    assert cached_classpath(tmp_path) is None


def test_a_folder_that_lost_a_jar_is_not_filled(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_text("")
    (tmp_path / "classpath").write_text("a.jar\nb.jar")
    assert cached_classpath(tmp_path) is None


def test_a_filled_folder_gives_its_class_path(tmp_path: Path) -> None:
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_text("")
    (tmp_path / "classpath").write_text("a.jar\nb.jar")
    assert cached_classpath(tmp_path) == f"{tmp_path / 'a.jar'}:{tmp_path / 'b.jar'}"
