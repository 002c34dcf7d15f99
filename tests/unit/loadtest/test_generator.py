"""Load as it is made: when calls are due, however long the ones before take."""

import asyncio
import time
from itertools import pairwise

import pytest

from loadtest.generator import Load, arrivals, evenly, generate, paced


def test_arrivals_are_those_of_independent_users() -> None:
    dues = list(arrivals(1_000.0, seed=1, start=5.0, end=15.0))
    gaps = [later - earlier for earlier, later in pairwise(dues)]
    mean = sum(gaps) / len(gaps)
    assert len(dues) == pytest.approx(10_000, rel=0.04)  # four standard deviations
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)  # 1/e of an exponential
    assert dues[0] > 5.0
    assert dues[-1] < 15.0


def test_the_same_seed_makes_the_same_arrivals() -> None:
    assert list(arrivals(50, 7, 0.0, 1.0)) == list(arrivals(50, 7, 0.0, 1.0))
    assert list(arrivals(50, 7, 0.0, 1.0)) != list(arrivals(50, 8, 0.0, 1.0))


def test_even_arrivals_are_as_many_as_the_rate_says() -> None:
    assert list(evenly(4.0, 10.0, 11.0)) == [10.0, 10.25, 10.5, 10.75]
    assert len(list(evenly(2.1, 0.0, 100.0))) == 210


async def test_calls_that_are_overdue_begin_at_once_and_in_order() -> None:
    begun: list[float] = []
    now = time.monotonic()
    dues = [now - 2.0, now - 1.0, now]
    await paced(dues, begun.append)
    assert begun == dues


async def test_no_call_begins_before_it_is_due() -> None:
    early: list[float] = []
    now = time.monotonic()
    await paced([now + number / 1_000 for number in range(20)], lambda due: early.append(time.monotonic() - due))
    assert len(early) == 20
    assert min(early) >= 0.0


async def test_pacing_that_is_cancelled_begins_nothing_more() -> None:
    begun: asyncio.Queue[float] = asyncio.Queue()
    pacing = asyncio.create_task(paced([0.0, time.monotonic() + 3_600], begun.put_nowait))
    assert await begun.get() == 0.0
    pacing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pacing
    assert begun.empty()


async def test_arrivals_do_not_wait_for_answers() -> None:
    expected = len(list(arrivals(200, 0, 0.0, 0.2)))
    all_out = asyncio.Event()
    out = 0

    async def call(_number: int) -> bool:
        nonlocal out
        out += 1
        if out >= expected - 1:  # one may be due in the very last moment
            all_out.set()
        await all_out.wait()
        return True

    measurement = await generate(Load(0.2, rate_per_s=200, warm_up_s=0), call)
    assert len(measurement.latencies) == out


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
