"""Whom KEDA asks how many workers a queue is to have: the autoscaler, which also speaks unasked, or Prometheus."""

from typing import Any

from schemas.metrics import DESIRED_REPLICAS
from schemas.models import Queue
from services.autoscaler.keda.scaler import QUEUE

Trigger = dict[str, Any]

KEDA_PORT = 9105
PROMETHEUS = "http://prometheus.monitoring:9090"
"""Is replaced by that of settings.env."""


def push(queue: Queue, namespace: str) -> Trigger:
    """KEDA keeps a stream open: a queue without a worker gets its first one when the autoscaler says so."""
    address = f"autoscaler.{namespace}.svc:{KEDA_PORT}"
    return _trigger("external-push", {"scalerAddress": address, QUEUE: queue.label})


def prometheus(queue: Queue) -> Trigger:
    """Asked every polling interval. What is not there is an error, and not 0: then the fallback holds."""
    return _trigger(
        "prometheus",
        {
            "serverAddress": PROMETHEUS,
            "query": f'max({DESIRED_REPLICAS.name}{{model_class="{queue.model_class}",backend="{queue.backend}"}})',
            "threshold": "1",
            "activationThreshold": "0",
            "ignoreNullValues": "false",
        },
    )


def _trigger(kind: str, metadata: dict[str, str]) -> Trigger:
    """Pods are the metric over its target of one, whatever is there already."""
    return {"type": kind, "metricType": "AverageValue", "metadata": metadata}
