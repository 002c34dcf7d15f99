"""The pages as the servers write them, shortened."""

import pytest

from services.worker.domain.engine import Load
from services.worker.engines.metrics_page import read_load

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m, \\"x\\" }"} 7.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# HELP vllm:num_requests_waiting_by_reason Number of waiting requests by reason.
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.9375
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 12.0
"""
LLAMACPP = """\
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 3
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 1
"""


def test_of_vllm() -> None:
    assert read_load(VLLM) == Load(running=7, waiting=2, kv_cache_use=0.9375)


def test_of_several_engines_behind_one_server_calls_are_added_and_the_fullest_cache_counts() -> None:
    other = VLLM.replace('engine="0"', 'engine="1"').replace("0.9375", "0.25").replace("7.0", "1.0")
    assert read_load(VLLM + other) == Load(running=8, waiting=4, kv_cache_use=0.9375)


def test_of_llama_cpp() -> None:
    assert read_load(LLAMACPP) == Load(running=3, waiting=1)


@pytest.mark.parametrize(
    "page", ["", "<html>", '{"detail": "Not Found"}', "up 1\n", "vllm:num_requests_running 1.0\n"]
)
def test_another_page_says_nothing(page: str) -> None:
    assert read_load(page) is None


def test_a_page_that_is_broken_is_an_error() -> None:
    with pytest.raises(ValueError, match="many"):
        read_load(LLAMACPP.replace("3", "many"))
