"""Settings of the host: `HEADWAY_HOST_…`."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.chassis.settings import ServiceSettings, Words


class HostSettings(ServiceSettings):
    """Which workers this machine keeps."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_HOST_")

    metrics_port: int = Field(default=9104, ge=0, le=65_535)
    model_classes: Words = Field(default=(), description="Classes this host may run; empty: all.")
    worker_output: Literal["files", "inherited"] = Field(
        default="files", description="Where workers log: <home>/logs, or where the host does, as containers want it."
    )
    drain_timeout_s: float = Field(default=5.0, gt=0, le=600, description="Its workers take 4 s of it to drain.")
