"""The figures of a load test: exact percentiles, and latencies counted from when a request was due."""

import asyncio

import pytest

from loadtest.generator import Load, generate
from loadtest.measure import Measurement, percentile, summary_ms


def test_percentiles_are_nearest_rank() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, percent) for percent in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([3.0], 50) == 3.0
    assert percentile([], 50) == 0.0


def test_summaries_are_in_milliseconds() -> None:
    assert summary_ms([0.001, 0.002, 0.003], 50, 99) == {"p50": 2.0, "p99": 3.0}


def test_throughput_counts_what_completed() -> None:
    measurement = Measurement(failed=7, duration_s=10.0)
    for _ in range(50):
        measurement.latencies.record(0.1)
    assert measurement.as_json()["throughput_per_s"] == 5.0
    assert Measurement().throughput_per_s == 0.0


@pytest.mark.parametrize("load", [Load(0.2, rate_per_s=200, warm_up_s=0), Load(0.2, concurrency=4, warm_up_s=0)])
async def test_a_stall_shows_in_the_latency_of_the_calls_that_were_due(load: Load) -> None:
    free = asyncio.Event()
    asyncio.get_running_loop().call_later(0.15, free.set)

    async def call(_number: int) -> bool:
        await free.wait()
        await asyncio.sleep(0.001)
        return True

    measurement = await generate(load, call)
    assert measurement.latencies.max_s >= 0.1
    assert measurement.failed == 0


async def test_failures_and_the_warm_up_are_not_counted_as_completed() -> None:
    async def call(number: int) -> bool:
        await asyncio.sleep(0.01)
        return number % 2 == 0

    measurement = await generate(Load(0.2, concurrency=2, warm_up_s=0.1), call)
    assert measurement.failed > 0
    assert 0 < len(measurement.latencies) < 40
