"""The pods of one queue: a Deployment, as many of them as the autoscaler decides, and no two gone at once."""

from typing import Any

from infra.kubernetes.grace import MARGIN_S
from infra.kubernetes.triggers import Trigger, push
from schemas.models import Queue, Resources
from services.autoscaler.domain.rules import Rules

Manifest = dict[str, Any]

PORT = 9104
ENGINE = "headway/engine"
"""The label by which vllm.yaml finds the workers that need another image."""
MAX_NAME = 63
"""Names are values of labels, too."""
POLL_S = 10
"""How often KEDA asks beside what it is told: whether to go on, and to go to zero."""
AFTER_ACTIVE_S = 30
"""The policy has waited for its own cooldown before it says 0. This outlasts an answer that a push has overtaken."""
FAILURES = 10
"""In a row, of KEDA's questions and of Kubernetes' own every 15 s, before the fallback: about a minute."""
HPA_PERIOD_S = 15


def name_of(queue: Queue) -> str:
    """Of everything that belongs to a queue. Raises ValueError for one that Kubernetes would not take."""
    name = f"worker-{queue.label}".replace(".", "-")
    if len(name) > MAX_NAME:
        raise ValueError(f"{queue.label}: {name} has more than {MAX_NAME} characters: give the class a shorter name")
    return name


def manifests(queue: Queue, drain_s: int, namespace: str) -> list[Manifest]:
    """All of a queue. `drain_s`: how long its tasks may take to end. `namespace`: where the autoscaler is."""
    return [_deployment(queue, drain_s), _disruption_budget(queue), _scaled_object(queue, push(queue, namespace))]


def _deployment(queue: Queue, drain_s: int) -> Manifest:
    """Without a number of replicas: that is KEDA's, and another `kubectl apply` does not reset it."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name_of(queue), "labels": _labels(queue)},
        "spec": {
            "selector": {"matchLabels": _name_label(queue)},
            "strategy": {"rollingUpdate": _rollout(queue.resources)},
            "template": {
                "metadata": {"labels": _labels(queue)},
                "spec": {
                    "terminationGracePeriodSeconds": drain_s + MARGIN_S,
                    "containers": [_container(queue, drain_s)],
                },
            },
        },
    }


def _rollout(needs: Resources) -> Manifest:
    """The new one is there before an old one goes; but of GPUs there are rarely some to spare."""
    return {"maxSurge": 0, "maxUnavailable": 1} if needs.gpu else {"maxSurge": 1, "maxUnavailable": 0}


def _container(queue: Queue, drain_s: int) -> Manifest:
    settings = {"METRICS_HOST": "0.0.0.0", "METRICS_PORT": str(PORT), "DRAIN_TIMEOUT_S": str(drain_s)}  # noqa: S104
    return {
        "name": "headway",
        "args": ["worker", "--model-class", queue.label],
        "env": [{"name": f"HEADWAY_WORKER_{name}", "value": value} for name, value in settings.items()],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "metrics"},
            "periodSeconds": 2,
            "timeoutSeconds": 2,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "metrics"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "resources": _resources(queue.resources),
    }


def _resources(needs: Resources) -> Manifest:
    """What the configuration says is asked for. Twice the memory is an illness; a processor is shared when idle."""
    gpus = {"nvidia.com/gpu": str(needs.gpu)} if needs.gpu else {}
    return {
        "requests": {"cpu": f"{round(needs.cpu * 1_000)}m", "memory": _mebibytes(needs.memory), **gpus},
        "limits": {"memory": _mebibytes(2 * needs.memory), **gpus},
    }


def _mebibytes(count: int) -> str:
    return f"{-(-count >> 20)}Mi"


def _disruption_budget(queue: Queue) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name_of(queue), "labels": _labels(queue)},
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": _name_label(queue)},
        },
    }


def _scaled_object(queue: Queue, trigger: Trigger) -> Manifest:
    rules = Rules.of(queue)
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name_of(queue), "labels": _labels(queue)},
        "spec": {
            "scaleTargetRef": {"name": name_of(queue)},
            "minReplicaCount": min(rules.warm.replicas, rules.ceiling),  # what a budget may choose, it says itself
            "maxReplicaCount": rules.ceiling,
            "pollingInterval": POLL_S,
            "cooldownPeriod": AFTER_ACTIVE_S,
            "fallback": {
                "failureThreshold": FAILURES,
                "replicas": max(1, rules.kept),
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _obedience(rules.ceiling)}},
            "triggers": [trigger],
        },
    }


def _obedience(ceiling: int) -> Manifest:
    """At once, up and down: windows are the policy's, and two of them would add up."""
    at_once = {"type": "Pods", "value": ceiling, "periodSeconds": HPA_PERIOD_S}
    return {way: {"stabilizationWindowSeconds": 0, "policies": [at_once]} for way in ("scaleUp", "scaleDown")}


def _name_label(queue: Queue) -> dict[str, str]:
    return {"app.kubernetes.io/name": name_of(queue)}


def _labels(queue: Queue) -> dict[str, str]:
    return {**_name_label(queue), "app.kubernetes.io/component": "worker", ENGINE: queue.engine.kind}
