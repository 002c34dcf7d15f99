"""Runs that stay open: their first events, written straight into the log, with a step that nobody will finish."""

import asyncio
from collections.abc import Iterator

from loadtest.nemesis.fault import now_ms
from schemas import ids
from schemas.base import Output, Priority
from schemas.events import RequestCoordinates, RunStarted, StepCompleted
from schemas.graphs import Graph, Step, StepKind, Target
from schemas.requests import MAX_DEADLINE_MS
from schemas.topics import EVENTS, REQUESTS, RESPONSES
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import Producer

TENANT = "default"
OUTPUT_BYTES = 2_000
SLICE = 500
"""Records that are acknowledged together."""

NOBODY = (Target(model_class="nobody"),)
GRAPH = Graph(
    pipeline="open-runs",
    version=1,
    steps=(
        Step(id="done", kind=StepKind.MODEL, input={"text": "${input.text}"}, chain=NOBODY),
        Step(id="open", kind=StepKind.MODEL, needs=("done",), reads_input=False, chain=NOBODY),
    ),
    output="${steps.open}",
    output_reads=("open",),
)
"""Its model class has no backend: when an orchestrator reads of it, the run fails, and is gone."""


def opened(name: str, at_ms: int) -> RunStarted:
    """The first event of a run that may last an hour."""
    return RunStarted(
        run_id=ids.run_id(TENANT, name),
        tenant=TENANT,
        request_id=name,
        request=RequestCoordinates(topic=REQUESTS, partition=0, offset=0, log_time=at_ms),
        body_digest=name,
        response_topic=RESPONSES,
        input=Output(value={"text": name}),
        priority=Priority.BATCH,
        deadline_at=at_ms + MAX_DEADLINE_MS,
        graph=GRAPH,
        graph_digest="open-runs-1",
    )


def completed(started: RunStarted, output_bytes: int) -> StepCompleted:
    """Its first step is done, and its output has that size."""
    output = Output(value={"text": "x" * output_bytes})
    return StepCompleted(
        run_id=started.run_id, tenant=TENANT, step="done", attempt=1, model_class="nobody", output=output
    )


async def open_runs(producer: Producer, name: str, runs: int) -> None:
    """Opens so many runs and completes the first step of each. Returns when the log has it all."""
    for numbers in _slices(runs):
        started = [opened(f"{name}-{number}", now_ms()) for number in numbers]
        await producer.send_all([run_record(EVENTS, event) for event in started])
        await producer.send_all([run_record(EVENTS, completed(event, OUTPUT_BYTES)) for event in started])
        await asyncio.sleep(0)


async def start_runs(producer: Producer, name: str, runs: int) -> None:
    """Opens so many runs, whose first step waits for somebody to do it. Returns when the log has it all."""
    for numbers in _slices(runs):
        await producer.send_all([run_record(EVENTS, opened(f"{name}-{number}", now_ms())) for number in numbers])
        await asyncio.sleep(0)


async def probe(producer: Producer, name: str, partitions: int) -> dict[str, int]:
    """Opens a run in every partition; the partition by run id."""
    started = [opened(f"{name}-{partition}", now_ms()) for partition in range(partitions)]
    await producer.send_all([run_record(EVENTS, event, partition=number) for number, event in enumerate(started)])
    return {event.run_id: number for number, event in enumerate(started)}


def _slices(runs: int) -> Iterator[range]:
    return (range(first, min(first + SLICE, runs)) for first in range(0, runs, SLICE))
