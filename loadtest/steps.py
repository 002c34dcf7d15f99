"""Steps that were completed, as the events topic tells: when their task was queued, and when they were over."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord
from pydantic_core import from_json

from loadtest.latencies import Latencies
from schemas.topics import EVENTS


class Step(NamedTuple):
    """One, in log time."""

    model_class: str
    task_ms: int
    """When its task was appended."""
    over_ms: int
    """When it was completed."""
    service_ms: float
    """Of that in its engine."""


async def completed_since(bootstrap: str, from_ms: int) -> list[Step]:
    """Every step with a task that was completed from then on, to the present end of the log."""
    consumer = AIOKafkaConsumer(EVENTS, bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = consumer.assignment()
        left = await consumer.end_offsets(partitions)
        for partition, found in (await consumer.offsets_for_times(dict.fromkeys(partitions, from_ms))).items():
            consumer.seek(partition, found.offset if found else left[partition])
        steps: list[Step] = []
        while left := {tp: end for tp, end in left.items() if await consumer.position(tp) < end}:
            for records in (await consumer.getmany(*left, timeout_ms=500)).values():
                steps.extend(_steps(records))
        return steps
    finally:
        await consumer.stop()


def _steps(records: Iterable[ConsumerRecord]) -> Iterator[Step]:
    for record in records:
        event = from_json(record.value or b"{}")
        if event.get("type") == "step-completed" and event.get("task_at") is not None:
            yield Step(event["model_class"], event["task_at"], record.timestamp, event["service_ms"])


def by_class(steps: Iterable[Step]) -> dict[str, list[Step]]:
    """Those of each model class, by name."""
    name = attrgetter("model_class")
    return {key: list(group) for key, group in groupby(sorted(steps, key=name), key=name)}


def latencies(steps: Iterable[Step]) -> Latencies:
    """From the task in its queue to the end of the step."""
    found = Latencies()
    for step in steps:
        found.record((step.over_ms - step.task_ms) / 1_000)
    return found


def tasks_behind(steps: Iterable[Step]) -> Iterator[tuple[int, int]]:
    """(log time, tasks queued or running from then on), by time."""
    changes: Counter[int] = Counter()
    for step in steps:
        changes[step.task_ms] += 1
        changes[step.over_ms] -= 1
    behind = 0
    for at_ms in sorted(changes):
        behind += changes[at_ms]
        yield at_ms, behind


def mean_service_s(steps: Collection[Step]) -> float:
    """In the engine; 0 of nothing."""
    return sum(step.service_ms for step in steps) / len(steps) / 1_000 if steps else 0.0
