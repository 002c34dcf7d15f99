"""A plane is watched over the measured time, and no longer."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headway.plane.endpoints import Endpoints, write_endpoints
from loadtest import observation, resources
from loadtest.context import Context
from loadtest.generator import Load
from loadtest.lags import LagSeries
from loadtest.observation import observe
from loadtest.resources import Usage


@pytest.fixture
def context(tmp_path: Path) -> Context:
    write_endpoints(tmp_path, Endpoints(ready=True, kafka="nobody:1", redis="", pids={"plane": os.getpid()}))
    return Context(Load(0.1, concurrency=1, warm_up_s=0.1), tmp_path, print)


async def test_neither_cpu_time_nor_lag_of_the_warm_up_counts(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    begun: list[int] = []

    def begin() -> LagSeries:
        begun.append(calls)
        series = LagSeries()
        series.add(0.0, {"quick batch": calls})
        return series

    @asynccontextmanager
    async def following_lags(bootstrap: str) -> AsyncIterator[Callable[[], LagSeries]]:
        assert bootstrap == "nobody:1"
        yield begin

    async def call(_number: int) -> bool:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.005)
        return True

    monkeypatch.setattr(observation, "following_lags", following_lags)
    monkeypatch.setattr(resources, "usage", lambda _: {"kafka": Usage(cpu_s=calls, rss_mib=7.0)})
    measurement = await observe(context, call)
    assert measurement.plane
    assert 0 < begun[0] < calls
    assert 0 < measurement.plane.cpu_s["kafka"] < calls
    assert measurement.plane.rss_mib == {"kafka": 7.0}
    assert measurement.plane.lag["tasks"] == {"quick batch": begun}
