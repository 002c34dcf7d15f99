"""One page of metrics for a host and all its workers."""

from prometheus_client.parser import text_string_to_metric_families

from schemas.metrics import TASK_SERVICE_SECONDS, TASKS_TOTAL, WORKER_RESTARTS_TOTAL
from services.chassis.metrics import Metrics
from services.host.adapters.expositions import merge

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def page(tasks: int) -> str:
    metrics = Metrics()
    metrics.counter(TASKS_TOTAL).labels("llm", "local", "batch", "succeeded").inc(tasks)
    metrics.histogram(TASK_SERVICE_SECONDS).labels("llm", "local").observe(tasks)
    return metrics.exposition().decode()


def samples(text: bytes) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_every_sample_of_a_worker_is_kept_under_its_name() -> None:
    merged = samples(merge(page(0), {"llm-0": page(3), "llm-1": page(5)}))
    alone = samples(page(3).encode())
    moving = ("process_cpu_seconds_total", "process_start_time_seconds", "process_resident_memory_bytes")
    for (name, labels), value in alone.items():
        found = merged[name, labels | {("worker", "llm-0")}]
        assert found == value or name.startswith(moving) or name.startswith("process_")
    tasks = {labels: value for (name, labels), value in merged.items() if name == "headway_tasks_total"}
    assert sorted(tasks.values()) == [0, 3, 5]


def test_the_hosts_own_metrics_have_no_worker() -> None:
    metrics = Metrics()
    metrics.counter(WORKER_RESTARTS_TOTAL).labels("llm", "local").inc()
    merged = samples(merge(metrics.exposition().decode(), {"llm-0": page(1)}))
    own = frozenset({("model_class", "llm"), ("backend", "local")})
    assert merged["headway_worker_restarts_total", own] == 1


def test_every_family_stands_once_with_its_type() -> None:
    text = merge(page(1), {"llm-0": page(2), "llm-1": page(3)}).decode()
    for kind in ("headway_tasks_total counter", "headway_task_service_seconds histogram"):
        assert text.count(f"# TYPE {kind}\n") == 1


def test_a_page_that_cannot_be_read_is_left_out() -> None:
    merged = merge(page(1), {"llm-0": 'broken{label="x\n', "llm-1": page(2)})
    assert b'worker="llm-0"' not in merged
    assert b'worker="llm-1"' in merged
