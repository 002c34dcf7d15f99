"""Settings of the autoscaler: `HEADWAY_AUTOSCALER_…`."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.chassis.settings import ServiceSettings


class AutoscalerSettings(ServiceSettings):
    """How the lag is collected."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_AUTOSCALER_")

    metrics_port: int = Field(default=9103, ge=0, le=65_535, description="0: any free port.")
