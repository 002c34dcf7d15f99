"""One page of metrics out of many: the host's own, and those of its workers under a `worker` label."""

from collections.abc import Iterable, Mapping

from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


def merge(own: str, workers: Mapping[str, str]) -> bytes:
    """In Prometheus's text format, each family once. A page that cannot be read is left out."""
    families: dict[str, Metric] = {}
    _add(families, own, {})
    for worker, text in workers.items():
        _add(families, text, {"worker": worker})
    return generate_latest(_Merged(families.values()))


def _add(families: dict[str, Metric], text: str, labels: Mapping[str, str]) -> None:
    try:
        read = list(text_string_to_metric_families(text))
    except ValueError:
        return
    for family in read:
        whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        whole.samples.extend(sample._replace(labels={**sample.labels, **labels}) for sample in family.samples)


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
