"""What an autoscaler takes of a configuration: whose lag is looked at, and what scaling may cost."""

from collections.abc import Mapping
from typing import NamedTuple

from schemas.config import Bundle
from schemas.models import Queue, queues
from schemas.topics import (
    AGGREGATOR_GROUP,
    EVENTS,
    JOINS,
    ORCHESTRATOR_JOINS_GROUP,
    ORCHESTRATOR_REQUESTS_GROUP,
    REQUESTS,
)


class Watched(NamedTuple):
    """Everything whose lag is looked at."""

    queues: tuple[Queue, ...]
    ingress_topics: tuple[str, ...] = ()
    """The tenants' own."""
    pipelines: tuple[frozenset[str], ...] = ()
    """The model classes that each of them calls."""
    budget_usd_hour: float | None = None
    """For workers that sleep."""

    @classmethod
    def of(cls, bundle: Bundle) -> "Watched":
        """What a configuration makes of it."""
        own = (topic for tenant in bundle.tenants.values() for topic in tenant.ingress_topics)
        pipelines = (
            frozenset(step.model_class for step in spec.steps if step.model_class) for spec in bundle.pipelines
        )
        return cls(
            tuple(queues(bundle.model_classes)),
            tuple(sorted(own)),
            tuple(filter(None, pipelines)),
            bundle.scaling.budget_usd_hour,
        )

    @property
    def services(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """By service: its groups, and their topics."""
        requests = (REQUESTS, *self.ingress_topics)
        return {
            "orchestrator": {ORCHESTRATOR_REQUESTS_GROUP: requests, ORCHESTRATOR_JOINS_GROUP: (JOINS,)},
            "aggregator": {AGGREGATOR_GROUP: (EVENTS,)},
            "worker": {queue.group: (queue.topic,) for queue in self.queues},
        }

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """The topics of every group."""
        return {group: topics for groups in self.services.values() for group, topics in groups.items()}


NOTHING = Watched(())
