"""The aggregator's settings."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from schemas.topics import IDEMPOTENCY_WINDOW_MS, RETENTION_MS
from services.aggregator.snapshots import EVERY_S
from services.chassis.settings import ServiceSettings


class AggregatorSettings(ServiceSettings):
    """`HEADWAY_AGGREGATOR_…`."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_AGGREGATOR_")

    metrics_port: int = Field(default=9102, ge=0, le=65_535, description="0: any free port.")
    idempotency_window_ms: int = Field(
        default=IDEMPOTENCY_WINDOW_MS,
        ge=1_000,
        le=RETENTION_MS // 2,
        description="W: how long a finished run is remembered. The same for all aggregators of a plane.",
    )
    snapshot_interval_s: float = Field(
        default=EVERY_S,
        ge=0.1,
        le=3_600,
        description="How often a partition's state is written, when it has changed.",
    )
