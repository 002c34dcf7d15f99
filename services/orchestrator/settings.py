"""The orchestrator's settings."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.chassis.settings import ServiceSettings


class OrchestratorSettings(ServiceSettings):
    """`HEADWAY_ORCHESTRATOR_…`."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_ORCHESTRATOR_")

    metrics_port: int = Field(default=9101, ge=0, le=65_535, description="0: any free port.")
    max_open_runs: int = Field(
        default=100_000,
        ge=1,
        description="Runs without an outcome above which interactive requests are refused as `overloaded`; standard"
        " ones are above 90 % of it, batch ones above 80 %.",
    )
