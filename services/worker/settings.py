"""Settings of a worker: `HEADWAY_WORKER_…`."""

import socket

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.chassis.settings import ServiceSettings


class WorkerSettings(ServiceSettings):
    """What is the same for every model class; the rest stands in models.yaml."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_WORKER_")

    host: str = Field(default_factory=socket.gethostname, description="The host that keeps it, as statuses name it.")
    drain_timeout_s: float = Field(default=4.0, gt=0, le=600, description="Running tasks have a second less to end.")
    asleep: bool = Field(default=False, description="Sleep as soon as the engine has proven that it works.")
