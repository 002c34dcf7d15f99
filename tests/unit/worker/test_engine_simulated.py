import asyncio
import statistics
import time
from collections.abc import Mapping

import pytest

from schemas.base import Json
from schemas.errors import ErrorCode
from schemas.models import SimulatedEngine as Config
from services.worker.domain.engine import Call, DeadlineExceeded, EngineError, EngineUnavailable, Outcome, Result
from services.worker.engines.simulated import SimulatedEngine


async def started(**config: object) -> SimulatedEngine:
    engine = SimulatedEngine(Config.model_validate({"kind": "simulated", "latency_ms": 0} | config))
    await engine.start()
    return engine


def call(number: int, value: Mapping[str, Json] | None = None, deadline_s: float = 5.0) -> Call:
    return Call(f"r{number}/s#1", f"r{number}", "s", 1, "acme", None, value or {}, deadline_s)


async def ask(engine: SimulatedEngine, value: Mapping[str, Json] | None = None, deadline_s: float = 5.0) -> Outcome:
    (outcome,) = await engine.infer([call(1, value, deadline_s)])
    return outcome


async def test_it_answers_with_its_output_or_else_its_input() -> None:
    assert await ask(await started(output={"a": 1}), {"b": 2}) == Result({"a": 1})
    assert await ask(await started(), {"b": 2, "simulate": {"latency_ms": 1}}) == Result({"b": 2})


async def test_a_constant_latency_is_kept() -> None:
    engine = await started(latency_ms=30)
    began = time.monotonic()
    await ask(engine)
    assert 0.03 <= time.monotonic() - began < 1


async def test_the_calls_of_a_batch_work_at_the_same_time() -> None:
    engine = await started(latency_ms=100, max_batch=50)
    assert engine.max_batch == 50
    began = time.monotonic()
    await engine.infer([call(number) for number in range(50)])
    assert time.monotonic() - began < 2


async def drawn(monkeypatch: pytest.MonkeyPatch, calls: int, seed: int, reverse: bool = False) -> list[float]:
    """The seconds that an engine would have waited for each of its calls."""
    engine = await started(latency_ms={"p50": 10, "p99": 100}, seed=seed)
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    with monkeypatch.context() as patched:
        patched.setattr("services.worker.engines.simulated.asyncio.sleep", sleep)
        for number in sorted(range(calls), reverse=reverse):
            await ask_as(engine, number)
    return waited[::-1] if reverse else waited


async def ask_as(engine: SimulatedEngine, number: int) -> None:
    await engine.infer([call(number)])


async def test_latencies_have_the_median_and_the_99th_percentile_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = await drawn(monkeypatch, 4_000, seed=1)
    assert statistics.median(waited) == pytest.approx(0.010, rel=0.1)
    assert statistics.quantiles(waited, n=100)[98] == pytest.approx(0.100, rel=0.25)


async def test_latencies_depend_on_seed_and_task_not_on_order(monkeypatch: pytest.MonkeyPatch) -> None:
    first = await drawn(monkeypatch, 20, seed=1)
    assert await drawn(monkeypatch, 20, seed=1, reverse=True) == first
    assert await drawn(monkeypatch, 20, seed=2) != first


async def test_the_error_rate_is_kept_and_repeats() -> None:
    engine = await started(error_rate=0.3, seed=7)
    outcomes = [await engine.infer([call(number) for number in range(500)]) for _ in range(2)]
    failed = [[isinstance(outcome, EngineError) for outcome in round_] for round_ in outcomes]
    assert failed[0] == failed[1]
    assert 110 < sum(failed[0]) < 190
    await engine.health()


@pytest.mark.parametrize(
    "code", ["invalid_input", "content_too_large", "deadline_exceeded", "engine_unavailable", "engine_failed"]
)
async def test_one_call_can_be_told_to_fail(code: str) -> None:
    outcome = await ask(await started(), {"simulate": {"fail": code}})
    assert isinstance(outcome, EngineError)
    assert outcome.code == ErrorCode(code)


async def test_one_call_can_be_told_to_take_its_time() -> None:
    outcome = await ask(await started(), {"simulate": {"latency_ms": 5_000}}, deadline_s=0.05)
    assert isinstance(outcome, DeadlineExceeded)


async def test_an_outage_begins_and_ends_on_time() -> None:
    engine = await started(outages=[{"after_s": 0.1, "for_s": 0.2, "kind": "fail"}])
    loop = asyncio.get_running_loop()
    began, seen = loop.time(), []
    while (now_s := loop.time() - began) < 0.5:
        outcome = await ask(engine)
        seen.append((now_s, isinstance(outcome, EngineUnavailable)))
        await asyncio.sleep(0.005)
    assert any(failed for now_s, failed in seen)
    assert not any(failed for now_s, failed in seen if now_s < 0.08 or now_s > 0.32)


async def test_an_outage_is_seen_by_the_health_check() -> None:
    engine = await started(outages=[{"after_s": 0, "for_s": 60, "kind": "fail"}])
    with pytest.raises(EngineUnavailable, match="simulated outage"):
        await engine.health()


async def test_an_engine_that_hangs_answers_nobody() -> None:
    engine = await started(outages=[{"after_s": 0, "for_s": 60, "kind": "hang"}])
    assert isinstance(await ask(engine, deadline_s=0.05), DeadlineExceeded)


async def test_a_slow_engine_takes_ten_times_as_long() -> None:
    engine = await started(latency_ms=10, outages=[{"after_s": 0, "for_s": 60, "kind": "slow"}])
    began = time.monotonic()
    assert isinstance(await ask(engine), Result)
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize(("given", "wakes_in_s"), [({}, 15.0), ({"wake_ms": 0}, 0.0), ({"wake_ms": 700}, 0.7)])
async def test_a_start_takes_its_time_and_waking_a_tenth_of_it_or_what_is_said(
    given: dict[str, float], wakes_in_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("services.worker.engines.simulated.asyncio.sleep", sleep)
    engine = await started(cold_start_ms=150_000, **given)
    await engine.sleep()
    assert isinstance(await ask(engine), EngineUnavailable)
    await engine.wake()
    assert slept == pytest.approx([150.0, wakes_in_s])
    await engine.stop()
    assert isinstance(await ask(engine), EngineUnavailable)
