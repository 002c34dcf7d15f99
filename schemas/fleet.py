"""Who is alive and how busy, and who is to run where: repeated every few seconds on the fleet topic."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from schemas.base import Contract, LogTime, Message


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
    slots: int = Field(ge=0, description="That it may use now: as many as its engine can take.")
    busy: int = Field(ge=0)
    ready_at: LogTime | None = Field(default=None, description="When the engine became ready.")
    committed: dict[int, int] = Field(default_factory=dict, description="Next offset by task partition it owns.")
    service_ms: float | None = Field(default=None, ge=0, description="Recent mean of engine time a task.")
    start_ms: float | None = Field(default=None, ge=0, description="What its last start took, from its process's.")
    definition: str | None = Field(default=None, description="Of its queue, with which it was started.")


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


class Capacity(Contract):
    """What a machine has for workers. Memory is in bytes."""

    cpu: float = Field(default=0.0, ge=0, description="Cores.")
    memory: int = Field(default=0, ge=0)
    gpus: int = Field(default=0, ge=0)
    gpu_memory: int = Field(default=0, ge=0, description="Of all GPUs together, which are alike.")


class HostStatus(FleetMessage):
    """A host and the worker processes it keeps. Workers are counted by `class` or `class.backend`."""

    type: Literal["host-status"] = "host-status"
    workers: dict[str, int] = Field(description="Worker processes, those that drain included.")
    ready: dict[str, int] = Field(default_factory=dict, description="Of these, the ones that are warm.")
    desired: dict[str, int] | None = Field(default=None, description="How many it is to keep; null: it does not say.")
    restarts: int = Field(default=0, ge=0, description="Workers restarted since the host began.")
    capacity: Capacity | None = Field(default=None, description="null: it is not placed on.")
    model_classes: tuple[str, ...] = Field(default=(), description="What it may run; empty: all.")
    labels: tuple[str, ...] = ()
    failing: tuple[str, ...] = Field(default=(), description="Of which workers do not become ready here.")
    leaving: bool = Field(default=False, description="It is to be given back: it gets nothing new.")


class AutoscalerStarted(FleetMessage):
    """An autoscaler has begun to lead. The offset of this record is its epoch."""

    type: Literal["autoscaler-started"] = "autoscaler-started"


class Kept(Contract):
    """Workers of one queue on one host."""

    warm: int = Field(default=0, ge=0)
    asleep: int = Field(default=0, ge=0)


class Placement(FleetMessage):
    """What one host is to run, all of it; from the autoscaler that leads."""

    type: Literal["placement"] = "placement"
    host: str = Field(description="The host's `instance`.")
    epoch: int = Field(ge=0, description="Hosts obey the highest.")
    queues: dict[str, Kept] = Field(description="By `class` or `class.backend`; of what is not listed, none.")


class Term(Contract):
    """A line of the account of a decision."""

    term: str
    value: str
    how: str = ""


class Wished(Contract):
    """How many workers the load asked for at a time."""

    at: LogTime
    replicas: int = Field(ge=0)


class Steady(Contract):
    """What a stabilisation window knows: whoever leads next goes on with it."""

    replicas: int = Field(ge=0)
    changed_at: LogTime
    lowered: bool = Field(default=False, description="The last change took some away.")
    wishes: tuple[Wished, ...] = Field(min_length=1, description="Each more than all that came later.")


class ScalingDecision(FleetMessage):
    """How many workers a queue is to have, and why; from the autoscaler that leads."""

    type: Literal["scaling-decision"] = "scaling-decision"
    epoch: int = Field(ge=0)
    queue: str = Field(description="`class` or `class.backend`.")
    replicas: int = Field(ge=0)
    asleep: int = Field(default=0, ge=0)
    unplaced: int = Field(default=0, ge=0, description="Of these, the ones for which no host has room.")
    lag_s: float | None = Field(default=None, ge=0, description="Until the workers have done it; without any: null.")
    start_s: float | None = Field(default=None, ge=0, description="What a worker's start took; none was seen: null.")
    because: str
    terms: tuple[Term, ...] = ()
    steady: Steady | None = None


FleetStatus = (
    ServiceStatus
    | OpenRuns
    | WorkerStatus
    | BreakerState
    | HostStatus
    | AutoscalerStarted
    | Placement
    | ScalingDecision
)
FLEET: TypeAdapter[FleetStatus] = TypeAdapter(Annotated[FleetStatus, Field(discriminator="type")])
