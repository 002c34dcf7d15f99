"""Measured, not configured: what is told of runs is what happened to them, and everybody tells the same.

What happened is read from the broker's own stamps on the records, and from the scripts of simulated engines.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from aiokafka.structs import ConsumerRecord
from prometheus_client.parser import text_string_to_metric_families

from headway.client import HeadwayClient
from loadtest.steps import completed_since
from schemas.responses import InferenceResponse
from tests.e2e.planes import RunningPlane

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

TIMEOUT_S = 60.0
LLM_SLOTS = 4
CALL_MS = 2_000
COMPONENTS = ("queue", "cold", "service", "coordination")
NOISE_MS = 250
"""What a machine that runs other tests as well may put between two stamps. On a quiet one all is within 5 %."""


class Figures:
    """What the services' pages say now."""

    def __init__(self, pages: list[str]) -> None:
        families = [family for page in pages for family in text_string_to_metric_families(page)]
        self._samples = [sample for family in families for sample in family.samples]

    def total(self, name: str, **where: str) -> float:
        """The sum of all series with these labels."""
        return sum(s.value for s in self._samples if s.name == name and where.items() <= s.labels.items())


class Observer:
    """Asks a plane for its figures."""

    def __init__(self, plane: RunningPlane, http: httpx.AsyncClient) -> None:
        self._pages = plane.endpoints.metrics.values()
        self._http = http

    async def look(self) -> Figures:
        answers = await asyncio.gather(*(self._http.get(page) for page in self._pages))
        return Figures([answer.raise_for_status().text for answer in answers])

    async def until(self, holds: Callable[[Figures], bool]) -> Figures:
        """The first figures of which it holds: they follow what they count."""
        async with asyncio.timeout(TIMEOUT_S):
            while not holds(found := await self.look()):
                pass
        return found


@asynccontextmanager
async def observing(plane: RunningPlane) -> AsyncIterator[Observer]:
    async with httpx.AsyncClient() as http:
        yield Observer(plane, http)


def is_idle(figures: Figures) -> bool:
    return figures.total("headway_open_runs") == figures.total("headway_slots_busy") == 0


def runs_counted(figures: Figures, pipeline: str) -> float:
    return figures.total("headway_responses_total", pipeline=pipeline)


async def stamps(
    plane: RunningPlane, topic: str, *keys: str, of: Callable[[ConsumerRecord], bool] = lambda _: True
) -> list[int]:
    """When the broker appended the first such record of each key."""
    found: dict[str, int] = {}

    def complete(records: list[ConsumerRecord]) -> bool:
        for record in filter(of, records):
            found.setdefault((record.key or b"").decode(errors="replace"), record.timestamp)
        return found.keys() >= set(keys)

    await plane.read(topic, complete)
    return [found[key] for key in keys]


def completed(record: ConsumerRecord) -> bool:
    return b'"step-completed"' in (record.value or b"")


async def test_the_times_of_a_run_that_had_to_wait_are_right(plane: RunningPlane) -> None:
    """Every slot is taken for two seconds; another run of two seconds comes meanwhile."""
    async with HeadwayClient(plane.endpoints.kafka) as headway, observing(plane) as observer:
        before = await observer.until(is_idle)
        ahead = [await headway.submit("long", {"latency_ms": CALL_MS}) for _ in range(LLM_SLOTS)]
        await observer.until(lambda found: found.total("headway_slots_busy", model_class="llm") == LLM_SLOTS)
        began = time.monotonic()
        run = await headway.run("long", {"latency_ms": CALL_MS}, timeout_s=TIMEOUT_S)
        stopwatch_ms = (time.monotonic() - began) * 1_000
        others = [await headway.wait(submitted.request_id, TIMEOUT_S) for submitted in ahead]
        counted = runs_counted(before, "long") + len(others) + 1
        after = await observer.until(lambda found: runs_counted(found, "long") == counted)

    [asked_at] = await stamps(plane, "inference-requests", run.request_id)
    [task_at] = await stamps(plane, "inference-tasks-llm", run.run_id)
    ids = (run.run_id, *(other.run_id for other in others))
    ended_at, *freed_at = await stamps(plane, "inference-events", *ids, of=completed)
    timing = run.timing
    assert timing.total_ms == pytest.approx(stopwatch_ms, rel=0.05, abs=NOISE_MS)
    assert timing.total_ms == pytest.approx(ended_at - asked_at, rel=0.05)
    assert timing.service_ms == pytest.approx(CALL_MS, rel=0.05, abs=NOISE_MS)
    assert timing.queue_ms == pytest.approx(min(freed_at) - task_at, rel=0.05, abs=NOISE_MS)
    assert timing.coordination_ms == pytest.approx(task_at - asked_at, rel=0.05, abs=NOISE_MS)
    assert timing.cold_ms == 0

    for component in COMPONENTS:
        name, where = "headway_run_component_seconds_sum", {"pipeline": "long", "component": component}
        told_ms = sum(getattr(response.timing, f"{component}_ms") for response in (run, *others))
        assert (after.total(name, **where) - before.total(name, **where)) * 1_000 == pytest.approx(told_ms, abs=0.01)


CALL_USD = {"quick": 0.000013, "llm": 0.0021}
LLM_SECOND_USD = 1.8 / 3_600 / LLM_SLOTS
"""One of the slots of a replica, for a second."""
MICRO_DOLLAR = 0.000_001


def expected_cost(response: InferenceResponse) -> float:
    """What the price list of `config/models.yaml` says of the calls and seconds that a run has used."""
    used = response.usage.by_step.values()
    calls = sum(CALL_USD[step.model_class or ""] * step.attempts for step in used)
    return calls + LLM_SECOND_USD * sum(step.service_ms / 1_000 for step in used if step.model_class == "llm")


async def test_the_cost_of_a_run_is_right_and_everybody_tells_the_same(plane: RunningPlane) -> None:
    """A second of an LLM; four quick calls and an LLM; a call that failed and was paid for, and one more."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("long", {"latency_ms": 1_000}),
        ("ask-like", {"question": "why?"}),
        ("optional", {}),
    ]
    async with HeadwayClient(plane.endpoints.kafka) as headway, observing(plane) as observer:
        before = await observer.until(is_idle)
        long, ask, optional = runs = [await headway.run(*each, timeout_s=TIMEOUT_S) for each in asked]
        await observer.until(
            lambda found: all(runs_counted(found, name) > runs_counted(before, name) for name, _ in asked)
        )
        after = await observer.until(is_idle)  # all again: workers were asked before the runs were over, perhaps

    assert long.usage.cost_usd == pytest.approx(0.0021 + LLM_SECOND_USD, abs=0.05 * LLM_SECOND_USD)
    assert ask.usage.cost_usd == pytest.approx(4 * 0.000013 + 0.0021 + 0.020 * LLM_SECOND_USD, abs=20 * MICRO_DOLLAR)
    assert optional.usage.cost_usd == pytest.approx(2 * 0.000013, abs=MICRO_DOLLAR / 2)
    for run in runs:
        assert run.usage.cost_usd == pytest.approx(expected_cost(run), abs=MICRO_DOLLAR / 2)
        assert sum(step.cost_usd for step in run.usage.by_step.values()) == pytest.approx(run.usage.cost_usd)
        spent = after.total("headway_cost_usd_total", pipeline=run.pipeline)
        spent -= before.total("headway_cost_usd_total", pipeline=run.pipeline)
        assert spent == pytest.approx(run.usage.cost_usd, abs=MICRO_DOLLAR / 2)

    ids = {run.run_id for run in runs}
    records = await plane.read("inference-usage", lambda found: ids <= {bill["run_id"] for bill in bills(found)})
    for run in runs:
        (bill,) = (bill for bill in bills(records) if bill["run_id"] == run.run_id)
        told = run.usage.model_dump(mode="json")
        assert (bill["cost_usd"], bill["by_step"]) == (told["cost_usd"], told["by_step"])
        assert (bill["pipeline"], bill["status"], bill["request_id"]) == (run.pipeline, run.status, run.request_id)


def bills(records: list[ConsumerRecord]) -> list[dict[str, Any]]:
    return [json.loads(record.value) for record in records]


async def test_load_tests_read_every_step_from_the_log(plane: RunningPlane) -> None:
    async with HeadwayClient(plane.endpoints.kafka) as headway:
        run = await headway.run("long", {"latency_ms": CALL_MS}, timeout_s=TIMEOUT_S)
    [task_at] = await stamps(plane, "inference-tasks-llm", run.run_id)
    [over_at] = await stamps(plane, "inference-events", run.run_id, of=completed)
    steps = await completed_since(plane.endpoints.kafka, over_at)
    assert ("llm", task_at, over_at) in [(step.model_class, step.task_ms, step.over_ms) for step in steps]
