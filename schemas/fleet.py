"""Who is alive and how busy: repeated every few seconds on the fleet topic."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from schemas.base import LogTime, Message


class FleetMessage(Message):
    """A status; the newest one of an id counts."""

    instance: str = Field(description="The process: host name, service and a random suffix.")


class ServiceStatus(FleetMessage):
    """A service is up, and has taken this configuration revision."""

    type: Literal["service-status"] = "service-status"
    service: str
    revision: int | None = Field(default=None, description="The configuration revision in force; none yet: null.")


class OpenRuns(FleetMessage):
    """How many runs an aggregator holds, by events partition: admission's back-pressure."""

    type: Literal["open-runs"] = "open-runs"
    by_partition: dict[int, int]


class WorkerStatus(FleetMessage):
    """One (class, backend) of one worker process."""

    type: Literal["worker-status"] = "worker-status"
    host: str
    model_class: str
    backend: str
    state: Literal["starting", "warm", "asleep", "draining", "failed"]
    slots: int = Field(ge=0)
    busy: int = Field(ge=0)
    ready_at: LogTime | None = Field(default=None, description="When the engine became ready.")
    committed: dict[int, int] = Field(default_factory=dict, description="Next offset by task partition it owns.")
    service_ms: float | None = Field(default=None, ge=0, description="Recent mean of engine time a task.")


class CircuitState(StrEnum):
    """Whether an engine may be called."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class BreakerState(FleetMessage):
    """The circuit breaker of one (class, backend) on one worker, once its engine has started."""

    type: Literal["breaker-state"] = "breaker-state"
    model_class: str
    backend: str
    state: CircuitState
    probes: int = Field(default=0, ge=0, description="Half-open: how many tasks it would try now.")


class HostStatus(FleetMessage):
    """A host and the worker processes it keeps."""

    type: Literal["host-status"] = "host-status"
    workers: dict[str, int] = Field(description="Worker processes by `class` or `class.backend`.")
    desired: dict[str, int] | None = Field(default=None, description="How many it is to keep; null: it does not say.")
    restarts: int = Field(default=0, ge=0, description="Workers restarted since the host began.")


FleetStatus = ServiceStatus | OpenRuns | WorkerStatus | BreakerState | HostStatus
FLEET: TypeAdapter[FleetStatus] = TypeAdapter(Annotated[FleetStatus, Field(discriminator="type")])
