"""The environment outranks the file, the file the defaults; a bad value is one line that names its variable."""

from pathlib import Path

import pytest
from pydantic_settings import SettingsConfigDict

from services.chassis.settings import (
    KafkaSettings,
    PlaneSettings,
    RedisSettings,
    ServiceSettings,
    SettingsError,
    Words,
    environment,
    secret,
)


class HostLike(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="HEADWAY_HOST_")

    model_classes: Words = ()


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment():
        if name.startswith("HEADWAY_"):
            monkeypatch.delenv(name)


def written(folder: Path, text: str) -> Path:
    (folder / "settings.yaml").write_text(text, encoding="utf-8")
    return folder


def refusal(settings: type[ServiceSettings | KafkaSettings | RedisSettings], config: Path | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        settings.load(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_those_of_a_plane_on_this_machine() -> None:
    assert KafkaSettings.load().bootstrap_servers == "127.0.0.1:9092"
    assert RedisSettings.load().url.get_secret_value() == "redis://127.0.0.1:6379"
    assert PlaneSettings.load().blob_folder == Path(".headway/blobs")


def test_the_file_outranks_the_defaults(tmp_path: Path) -> None:
    config = written(tmp_path, "kafka: {bootstrap_servers: 'kafka:29092', replication_factor: 3}")
    assert KafkaSettings.load(config).bootstrap_servers == "kafka:29092"


def test_the_environment_outranks_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_KAFKA_BOOTSTRAP_SERVERS", "a:1,b:2")
    config = written(tmp_path, "kafka: {bootstrap_servers: 'kafka:29092', replication_factor: 3}")
    settings = KafkaSettings.load(config)
    assert (settings.bootstrap_servers, settings.replication_factor) == ("a:1,b:2", 3)


def test_an_empty_variable_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_KAFKA_SASL_USERNAME", "")
    assert KafkaSettings.load().sasl_username is None


def test_a_secret_may_be_mounted_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("s3cret\n", encoding="utf-8")
    monkeypatch.setenv("HEADWAY_KAFKA_SASL_PASSWORD_FILE", str(tmp_path / "password"))
    monkeypatch.setenv("LLM_API_KEY_FILE", str(tmp_path / "password"))
    config = written(tmp_path, "kafka: {sasl_password: written}")
    password = KafkaSettings.load(config).sasl_password
    assert password is not None
    assert (password.get_secret_value(), secret("LLM_API_KEY")) == ("s3cret", "s3cret")


def test_a_variable_outranks_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "servers").write_text("file:1", encoding="utf-8")
    monkeypatch.setenv("HEADWAY_KAFKA_BOOTSTRAP_SERVERS_FILE", str(tmp_path / "servers"))
    monkeypatch.setenv("HEADWAY_KAFKA_BOOTSTRAP_SERVERS", "variable:1")
    assert KafkaSettings.load().bootstrap_servers == "variable:1"


def test_a_file_that_cannot_be_used_is_named_by_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_KAFKA_BOOTSTRAP_SERVERS_FILE", str(tmp_path / "servers"))
    assert refusal(KafkaSettings).startswith(
        f"HEADWAY_KAFKA_BOOTSTRAP_SERVERS_FILE: {tmp_path / 'servers'} cannot be read"
    )
    (tmp_path / "servers").write_text("localhost", encoding="utf-8")
    assert refusal(KafkaSettings, tmp_path).startswith("HEADWAY_KAFKA_BOOTSTRAP_SERVERS_FILE: write host:port")


def test_a_list_is_written_with_commas_or_as_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HostLike.load(written(tmp_path, "host: {model_classes: [llm]}")).model_classes == ("llm",)
    monkeypatch.setenv("HEADWAY_HOST_MODEL_CLASSES", "embedding, llm,")
    assert HostLike.load().model_classes == ("embedding", "llm")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("HEADWAY_KAFKA_BOOTSTRAP_SERVERS", "localhost", "write host:port"),
        ("HEADWAY_KAFKA_REPLICATION_FACTOR", "many", "valid integer"),
        ("HEADWAY_KAFKA_TOPIC_PREFIX", "My Plane/", "at most 64 of a-z"),
        ("HEADWAY_KAFKA_SECURITY_PROTOCOL", "TLS", "'SASL_SSL'"),
    ],
)
def test_a_bad_variable_is_named_with_its_fix(
    variable: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    message = refusal(KafkaSettings)
    assert message.startswith(f"{variable}: ")
    assert expected in message


@pytest.mark.parametrize("url", ["localhost:6379", "http://redis:6379", "redis://u:secret@redis:port", "redis://["])
def test_a_store_that_is_none_is_named_without_its_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_REDIS_URL", url)
    message = refusal(RedisSettings)
    assert message == "HEADWAY_REDIS_URL: write redis://host:port, or rediss:// for TLS"


def test_a_bad_value_in_the_file_is_named_by_its_place(tmp_path: Path) -> None:
    message = refusal(HostLike, written(tmp_path, "host: {metrics_port: 99999}"))
    assert message.startswith(f"{tmp_path / 'settings.yaml'}: host.metrics_port: ")


def test_a_misspelt_name_in_the_file_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    message = refusal(HostLike, written(tmp_path, "host: {log_levle: debug}"))
    assert "host.log_levle" in message
    assert "log_level" in message.split("log_levle", 1)[1]


def test_a_misspelt_section_is_refused_with_the_sections_there_are(tmp_path: Path) -> None:
    assert "orchestrator" in refusal(HostLike, written(tmp_path, "orchestator: {log_level: debug}"))


@pytest.mark.parametrize("text", ["[1, 2]", "host: 7", "host: {1: 2}", "a: b: c", "\x00"])
def test_a_file_that_is_no_settings_is_refused_by_name(tmp_path: Path, text: str) -> None:
    assert "settings.yaml" in refusal(HostLike, written(tmp_path, text))


@pytest.mark.parametrize("text", ["", "host:\n", "# nothing\n"])
def test_an_empty_file_or_section_changes_nothing(tmp_path: Path, text: str) -> None:
    assert HostLike.load(written(tmp_path, text)) == HostLike.load()


def test_a_folder_without_a_settings_file_changes_nothing(tmp_path: Path) -> None:
    assert HostLike.load(tmp_path) == HostLike.load()


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_KAFKA_SASL_PASSWORD", "hunter2")
    monkeypatch.setenv("HEADWAY_REDIS_URL", "redis://:hunter2@cache:6379")
    assert "hunter2" not in f"{KafkaSettings.load()!r} {RedisSettings.load()!r}"


def test_a_secret_is_read_by_the_name_a_configuration_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_API_KEY", "k")
    assert (secret("LLM_API_KEY"), secret("NO_SUCH_KEY")) == ("k", None)
