"""Settings: `HEADWAY_<SERVICE>_<NAME>` variables over `<config folder>/settings.yaml` over defaults.

The file has one section a service, and `plane`, `kafka` and `redis`: `orchestrator: {log_level: debug}`. A value may
be mounted as a file, between the two: `HEADWAY_KAFKA_SASL_PASSWORD_FILE=/run/secrets/kafka-password`. This module is
the only reader of the environment.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

FILE = "settings.yaml"
SECTIONS = ("plane", "kafka", "redis", "gateway", "orchestrator", "worker", "aggregator", "autoscaler", "host")


class SettingsError(Exception):
    """A setting that cannot be used: one line that names the variable, and what it should be."""


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""`a,b` in the environment, a list in YAML."""


class Settings(BaseSettings):
    """One section. Subclasses set `env_prefix`; the section of `settings.yaml` has the same name."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_ignore_empty=True, hide_input_in_errors=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment outranks what `load` passes in, which is the file."""
        return (env_settings, init_settings)

    @classmethod
    def section(cls) -> str:
        """Its name in `settings.yaml`."""
        return cls.model_config["env_prefix"].removeprefix("HEADWAY").strip("_").lower() or "plane"

    @classmethod
    def load(cls, config: Path | None = None) -> Self:
        """Reads this section. Raises SettingsError for the first value that is wrong."""
        section = cls.section()
        written = _section_of(config / FILE, section) if config else {}
        try:
            return cls(**(written | _mounted(cls)))
        except ValidationError as error:
            raise SettingsError(_one_line(cls, error, config)) from None


def _section_of(file: Path, section: str) -> dict[str, Any]:
    if not file.exists():
        return {}
    import yaml  # few have the file, and it costs every process 40 ms

    try:
        document = yaml.safe_load(file.read_bytes()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise SettingsError(f"{file}: cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict) or not set(document) <= set(SECTIONS):
        raise SettingsError(f"{file}: its sections can be {', '.join(SECTIONS)}")
    found = document.get(section) or {}
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise SettingsError(f"{file}: `{section}` must hold names and values, like `log_level: info`")
    return found


def _mounted(cls: type[Settings]) -> dict[str, str]:
    """The values that stand in files of their own."""
    values = {name: _content(_variable(cls, name)) for name in cls.model_fields}
    return {name: value for name, value in values.items() if value is not None}


def _content(variable: str) -> str | None:
    """What is in the file that `<variable>_FILE` names, without white space around it."""
    file = os.environ.get(f"{variable}_FILE")
    if not file:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"{variable}_FILE: {file} cannot be read: {' '.join(str(error).split())}") from None


def _variable(cls: type[Settings], name: str) -> str:
    return f"{cls.model_config['env_prefix']}{name}".upper()


def _one_line(cls: type[Settings], error: ValidationError, config: Path | None) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0])
    variable = _variable(cls, name)
    if not os.environ.get(variable) and os.environ.get(f"{variable}_FILE"):
        variable = f"{variable}_FILE"
    elif config is not None and not os.environ.get(variable):
        variable = f"{config / FILE}: {cls.section()}.{name}"
    if first["type"] == "extra_forbidden":
        return f"{variable}: no such setting; there are {', '.join(cls.model_fields)}"
    return f"{variable}: {first['msg'].removeprefix('Value error, ')}"


def secret(name: str) -> str | None:
    """The value of the environment variable `name`, or of the file that `<name>_FILE` names.

    For keys that a configuration names but must not hold.
    """
    return os.environ.get(name) or _content(name)


def environment(**more: str) -> dict[str, str]:
    """This process's environment with `more` on top, for a child process."""
    return {**os.environ, **more}


def adopt(variables: Mapping[str, str]) -> None:
    """Puts these on top of this process's environment: for one that was forked, and had no environment given."""
    os.environ.update(variables)


class PlaneSettings(Settings):
    """What all services of one plane share."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_")

    home: Path = Field(default=Path(".headway"), description="Data and logs.")
    config: Path | None = Field(default=None, description="Folder with settings.yaml and functions/.")
    blobs: Path | None = Field(default=None, description="Folder of the blob store; default <home>/blobs.")

    @property
    def blob_folder(self) -> Path:
        """Where large values are."""
        return self.blobs or self.home / "blobs"


def _servers(value: str) -> str:
    if not re.fullmatch(r"[^\s,]+:\d+(,[^\s,]+:\d+)*", value):
        raise ValueError("write host:port, or host:port,host:port")
    return value


def _prefix(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9.-]{0,64}", value):
        raise ValueError("a prefix has at most 64 of a-z, 0-9, dot and hyphen")
    return value


Prefix = Annotated[str, AfterValidator(_prefix)]


class KafkaSettings(Settings):
    """How to reach the broker."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_KAFKA_")

    bootstrap_servers: Annotated[str, AfterValidator(_servers)] = "127.0.0.1:9092"
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_ca: Path | None = Field(default=None, description="PEM file of the authority that signed the broker's key.")
    topic_prefix: Prefix = ""
    group_prefix: Prefix = ""
    replication_factor: int = Field(default=1, ge=1, le=9)
    partitions: int | None = Field(
        default=None, ge=1, le=1_000, description="Of the plane's own topics; default: what they have, else 12."
    )


def _store(value: SecretStr) -> SecretStr:
    try:
        url = urlsplit(value.get_secret_value())
        is_one = url.scheme in ("redis", "rediss", "unix") and url.port != 0  # a port that is none raises
    except ValueError:  # its words may quote the password
        is_one = False
    if not is_one:
        raise ValueError("write redis://host:port, or rediss:// for TLS")
    return value


class RedisSettings(Settings):
    """How to reach the store. It holds no truth."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_REDIS_")

    url: Annotated[SecretStr, AfterValidator(_store)] = SecretStr("redis://127.0.0.1:6379")


class ServiceSettings(Settings):
    """What every service has; each derives its own with `env_prefix="HEADWAY_<SERVICE>_"` and its metrics port."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    metrics_host: str = Field(default="127.0.0.1", description="Address of /metrics, /healthz and /readyz.")
    metrics_port: int = Field(default=0, ge=0, le=65_535, description="0: any free port.")
    drain_timeout_s: float = Field(default=4.0, gt=0, le=600, description="From SIGTERM until the rest is given up.")
