"""A busy plane as series of numbers: everything that services expose, for two pipelines and two model classes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from schemas.base import Priority
from schemas.metrics import METRICS, SECONDS_BUCKETS, Metric

MINUTES = 30
VALUES: Mapping[str, Sequence[str]] = {
    "pipeline": ("ask", "sales"),
    "step": ("embed", "phrase"),
    "model_class": ("llm", "tools"),
    "backend": ("local",),
    "lane": tuple(Priority),
    "priority": tuple(Priority),
    "status": ("succeeded", "failed"),
    "outcome": ("succeeded", "failed"),
    "component": ("queue", "cold", "service", "coordination"),
    "state": ("warm", "asleep", "starting", "draining", "failed", "closed", "open", "half-open"),
    "kind": ("busy", "input", "output"),
    "from": ("zero",),
    "topic": ("inference-requests",),
    "reason": ("poison",),
    "partition": ("0", "1"),
    "consumergroup": ("headway-orchestrator-requests", "headway-worker-llm"),
    "service": ("orchestrator", "aggregator", "worker"),
    "bucket": ("5.0",),
}
INSTANCES = ("a", "b")
"""Everything is told twice, as by two of each service: no expression may stumble over that."""


def series() -> Iterator[dict[str, str]]:
    """As promtool takes them, one value a minute."""
    for job, instance in product(("orchestrator", "aggregator", "autoscaler", "host"), INSTANCES):
        yield _line("up", {"job": job, "instance": instance}, "1")
        for process in ("process_resident_memory_bytes", "process_cpu_seconds_total"):
            yield _line(process, {"job": job, "instance": instance}, "0+6")
    for metric in METRICS:
        for values in product(*(VALUES[label] for label in metric.labels), INSTANCES):
            yield from _of(metric, dict(zip((*metric.labels, "instance"), values, strict=True)))


def _of(metric: Metric, labels: Mapping[str, str]) -> Iterator[dict[str, str]]:
    if metric.kind == "gauge":
        yield _line(metric.name, labels, "0.9" if metric.name == "headway_slo_objective" else "2")
    elif metric.kind == "counter":
        yield _line(metric.name, labels, "0+6")
    else:
        yield _line(f"{metric.name}_sum", labels, "0+12")
        yield _line(f"{metric.name}_count", labels, "0+6")
        for bound in (*map(str, map(float, SECONDS_BUCKETS)), "+Inf"):
            yield _line(f"{metric.name}_bucket", {**labels, "le": bound}, f"0+{6 if float(bound) >= 2 else 3}")


def _line(name: str, labels: Mapping[str, str], values: str) -> dict[str, str]:
    inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{inside}}}", "values": f"{values}x{MINUTES}"}
