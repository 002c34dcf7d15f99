"""Every topic, in the order of a request: the single list from which tools, docs and topic creation are made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from schemas.config import Tenant
from schemas.models import ModelClass, Queue, queues
from schemas.requests import MAX_DEADLINE_MS

HOUR_MS = 3_600_000
IDEMPOTENCY_WINDOW_MS = HOUR_MS
"""W: how long a finished run's id is remembered."""
RETENTION_MS = max(24 * HOUR_MS, 2 * MAX_DEADLINE_MS, 2 * IDEMPOTENCY_WINDOW_MS)
MAX_RECORD_BYTES = 1 << 20
MAX_DEAD_LETTER_BYTES = 2 << 20

PARTITIONS = 12
"""Of a topic that is cut by request or by run, where nobody asked for another number."""

REQUESTS = "inference-requests"
EVENTS = "inference-events"
JOINS = "inference-joins"
TASKS = "inference-tasks-"
"""Followed by the model class, and by `.backend` for a further backend."""
RESPONSES = "inference-responses"
USAGE = "inference-usage"
CONFIG = "inference-config"
FLEET = "inference-fleet"
DEAD_LETTER_SUFFIX = "-dlq"

ORCHESTRATOR_REQUESTS_GROUP = "headway-orchestrator-requests"
ORCHESTRATOR_JOINS_GROUP = "headway-orchestrator-joins"
AGGREGATOR_GROUP = "headway-aggregator"
AUTOSCALER_GROUP = "headway-autoscaler"
"""Whoever owns the fleet topic's partition in it leads."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: what it carries, how it is cut, and who meets there."""

    name: str
    message: str
    key: str
    partitions: int | None = None
    """None: as many as the plane is given, which bounds how many orchestrators and aggregators share its work."""
    retention_ms: int | None = RETENTION_MS
    compacted: bool = False
    log_append_time: bool = True
    max_record_bytes: int = MAX_RECORD_BYTES
    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    dead_letters: bool = False
    keyed_by_run: bool = field(default=False)
    """Its partition count may never change: a run's records would part."""

    @property
    def dead_letter_topic(self) -> str:
        """Where its poison goes."""
        return self.name + DEAD_LETTER_SUFFIX

    @property
    def settings(self) -> dict[str, str]:
        """The broker settings this topic must have."""
        time_type = "LogAppendTime" if self.log_append_time else "CreateTime"
        settings = {
            "message.timestamp.type": time_type,
            "max.message.bytes": str(self.max_record_bytes + 65_536),
            "unclean.leader.election.enable": "false",
            "cleanup.policy": "compact" if self.compacted else "delete",
            "retention.bytes": "-1",
        }
        if self.retention_ms is not None:
            settings["retention.ms"] = str(self.retention_ms)
        return settings


def _ingress(name: str) -> Topic:
    return Topic(
        name,
        "InferenceRequest",
        "any",
        producers=("clients", "gateway", "cli"),
        consumers=("orchestrator",),
        dead_letters=True,
    )


def _responses(name: str) -> Topic:
    return Topic(name, "InferenceResponse", "request_id", producers=("aggregator",), consumers=("clients",))


def _tasks(queue: Queue) -> Topic:
    return Topic(
        queue.topic, "InferenceTask", "session, within the lane's partitions", partitions=queue.lanes.count,
        producers=("orchestrator",), consumers=("worker",), dead_letters=True,
    )  # fmt: skip


LOOP_TOPICS = (
    _ingress(REQUESTS),
    Topic(
        EVENTS, "Event", "run_id",
        producers=("orchestrator", "worker", "aggregator", "cli"), consumers=("aggregator",),
        dead_letters=True, keyed_by_run=True,
    ),
    Topic(
        JOINS, "StepReady", "run_id",
        producers=("aggregator",), consumers=("orchestrator",), dead_letters=True, keyed_by_run=True,
    ),
    _responses(RESPONSES),
    Topic(USAGE, "UsageRecord", "tenant", producers=("aggregator",), consumers=("quotas", "finance")),
    Topic(
        CONFIG, "Revision | CurrentRevision", "revision", partitions=1, retention_ms=None, compacted=True,
        log_append_time=False, producers=("cli",),
        consumers=("orchestrator", "worker", "aggregator", "autoscaler", "host"),
    ),
    Topic(
        FLEET, "FleetStatus", "instance", partitions=1, retention_ms=HOUR_MS,
        producers=("orchestrator", "aggregator", "worker", "autoscaler", "host"),
        consumers=("orchestrator", "autoscaler", "host", "cli"),
    ),
)  # fmt: skip


def dead_letter_topic(topic: Topic) -> Topic:
    """The dead-letter topic of a topic: the original bytes fit, with headers; the cli notes what it replayed."""
    return Topic(
        topic.dead_letter_topic, "the original bytes", "original key", partitions=3,
        max_record_bytes=MAX_DEAD_LETTER_BYTES, producers=(*topic.consumers, "cli"), consumers=("operators", "cli"),
    )  # fmt: skip


def all_topics(model_classes: Mapping[str, ModelClass], tenants: Mapping[str, Tenant]) -> Iterator[Topic]:
    """Every topic a configuration needs, dead letters included."""
    topics = list(LOOP_TOPICS)
    topics.extend(_tasks(queue) for queue in queues(model_classes))
    for name, tenant in tenants.items():
        topics.extend(_ingress(topic) for topic in tenant.ingress_topics)
        if tenant.ingress_topics:
            topics.append(_responses(f"{RESPONSES}-{name}"))
    for topic in topics:
        yield topic
        if topic.dead_letters:
            yield dead_letter_topic(topic)
