"""Whom KEDA asks how many workers a queue is to have: the autoscaler, which also speaks unasked, or Prometheus."""

from typing import Any

from schemas.metrics import DESIRED_REPLICAS
from schemas.models import Queue
from services.autoscaler.keda.scaler import QUEUE

Trigger = dict[str, Any]

KEDA_ADDRESS = "autoscaler.headway.svc:9105"
"""The namespace between the dots is replaced by the one in force."""
PROMETHEUS = "http://prometheus.monitoring:9090"
"""Is replaced by that of settings.env."""


def push(queue: Queue) -> Trigger:
    """KEDA keeps a stream open: a queue without a worker gets its first one when the autoscaler says so."""
    return {"type": "external-push", "metadata": {"scalerAddress": KEDA_ADDRESS, QUEUE: queue.label}}


def prometheus(queue: Queue) -> Trigger:
    """Asked every polling interval. What is not there is an error, and not 0: then the fallback holds."""
    return {
        "type": "prometheus",
        "metadata": {
            "serverAddress": PROMETHEUS,
            "query": f'max({DESIRED_REPLICAS.name}{{model_class="{queue.model_class}",backend="{queue.backend}"}})',
            "threshold": "1",
            "activationThreshold": "0",
            "ignoreNullValues": "false",
        },
    }
