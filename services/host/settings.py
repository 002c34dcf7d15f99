"""Settings of the host: `HEADWAY_HOST_…`."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from schemas.durations import Bytes
from services.chassis.settings import ServiceSettings, Words


class HostSettings(ServiceSettings):
    """Which workers this machine keeps, and what it has for them."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_HOST_")

    metrics_port: int = Field(default=9104, ge=0, le=65_535)
    model_classes: Words = Field(default=(), description="Classes this host may run; empty: all.")
    labels: Words = Field(default=(), description="What sets this machine apart, for placement.")
    cpu: float | None = Field(default=None, gt=0, description="Cores for workers; unset: those of the machine.")
    memory: Bytes | None = Field(default=None, description="For workers; unset: that of the machine.")
    gpus: int | None = Field(default=None, ge=0, description="Unset: those that nvidia-smi knows.")
    gpu_memory: Bytes | None = Field(default=None, description="Of all GPUs together; unset: what nvidia-smi says.")
    patience_s: float = Field(
        default=10.0, ge=0, le=3_600, description="Without a placement it keeps what is configured after this time."
    )
    worker_output: Literal["files", "inherited"] = Field(
        default="files", description="Where workers log: <home>/logs, or where the host does, as containers want it."
    )
    drain_timeout_s: float = Field(default=5.0, gt=0, le=600, description="Its workers take 4 s of it to drain.")
