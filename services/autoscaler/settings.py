"""Settings of the autoscaler: `HEADWAY_AUTOSCALER_…`."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.chassis.settings import ServiceSettings


class AutoscalerSettings(ServiceSettings):
    """Who starts workers."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_AUTOSCALER_")

    metrics_port: int = Field(default=9103, ge=0, le=65_535, description="0: any free port.")
    actuator: Literal["fleet", "none"] = Field(
        default="fleet",
        description="Who starts workers: hosts, told on the fleet topic, or somebody else, like Kubernetes.",
    )
    scale_machines: str | None = Field(
        default=None,
        pattern=r"^[\w.]+:\w+$",
        description="`module:function`, told what finds no room, and which hosts are empty; see functions/.",
    )
    keda_port: int = Field(default=0, ge=0, le=65_535, description="Where KEDA is answered over gRPC; 0: nowhere.")
