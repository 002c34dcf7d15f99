"""What an LLM server tells of its load on its page of metrics, in Prometheus's text format."""

from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from services.worker.domain.engine import Load


class _Names(NamedTuple):
    running: str
    waiting: str
    kv_cache_use: str = ""


_SERVERS = (
    _Names("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    _Names("llamacpp:requests_processing", "llamacpp:requests_deferred"),  # its slots share no cache
)
_TOLD = tuple(name for server in _SERVERS for name in server if name)


def read_load(page: str) -> Load | None:
    """None where it is no page of a server known here; ValueError where it is none at all.

    vLLM has a line for each of its engines, if it runs several.
    """
    # These lines alone: the parser takes ten milliseconds for all that vLLM tells.
    lines = "".join(line + "\n" for line in page.splitlines() if line.startswith(_TOLD))
    found: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.value)
    for running, waiting, kv_cache_use in _SERVERS:
        if running in found and waiting in found:
            use = max(found.get(kv_cache_use, ()), default=None)
            return Load(round(sum(found[running])), round(sum(found[waiting])), use)
    return None
