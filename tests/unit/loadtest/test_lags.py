"""Lag by lane, over any time, in bounded memory."""

from itertools import pairwise

import pytest

from loadtest.lags import EVERY_S, MAX_SAMPLES, LagSeries, behind_by_lane
from schemas.models import Backend, ModelClass, Queue, SimulatedEngine, queues
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.in_memory_offsets import InMemoryOffsetReader
from services.chassis.kafka.types import Commit, KafkaError, Outgoing, TopicPartition

TOPIC, GROUP = "inference-tasks-quick", "headway-worker-quick"


@pytest.fixture
def kafka() -> InMemoryKafka:
    found = InMemoryKafka(clock=lambda: 0)
    found.create_topic(TOPIC, 10)
    return found


def stands(kafka: InMemoryKafka, committed: dict[int, int], ends: dict[int, int]) -> InMemoryOffsetReader:
    for partition, end in ends.items():
        for _ in range(end):
            kafka.append(TopicPartition(TOPIC, partition), Outgoing(TOPIC, b"{}"))
    commits = {TopicPartition(TOPIC, partition): Commit(offset) for partition, offset in committed.items()}
    kafka.group(GROUP).commits.update(commits)
    return InMemoryOffsetReader(kafka)


@pytest.fixture
def queue() -> Queue:
    backend = Backend(name="local", engine=SimulatedEngine(kind="simulated"))
    (found,) = queues({"quick": ModelClass(backends=(backend,))})
    return found


async def test_a_lane_is_behind_by_what_its_partitions_are(queue: Queue, kafka: InMemoryKafka) -> None:
    reader = stands(kafka, committed={0: 10, 3: 5, 8: 7}, ends={0: 14, 3: 6, 5: 0, 8: 7})
    assert await behind_by_lane([queue], reader) == {
        "quick interactive": 5,
        "quick standard": 0,
        "quick batch": 0,
    }


async def test_without_a_commit_everything_is_still_to_be_done(queue: Queue, kafka: InMemoryKafka) -> None:
    assert (await behind_by_lane([queue], stands(kafka, committed={}, ends={4: 9})))["quick standard"] == 9


async def test_a_lane_of_which_nobody_says_how_far_it_is_has_no_lag_of_zero(
    queue: Queue, kafka: InMemoryKafka
) -> None:
    with pytest.raises(KafkaError):
        await behind_by_lane([queue], stands(kafka, committed={4: 10}, ends={4: 9}))


def test_lanes_that_were_never_behind_are_left_out() -> None:
    series = LagSeries()
    series.add(0.0, {"quick interactive": 0, "quick batch": 0})
    series.add(0.5, {"quick interactive": 3, "quick batch": 0})
    assert series.as_json() == {"at_s": [0.0, 0.5], "tasks": {"quick interactive": [0, 3]}}


def test_a_long_test_has_fewer_samples_a_minute_not_more_of_them() -> None:
    series = LagSeries()
    at_s = 0.0
    for _ in range(10 * MAX_SAMPLES):
        series.add(at_s, {"quick batch": 1})
        at_s += series.every_s
    found = series.as_json()
    assert MAX_SAMPLES / 2 <= len(found["at_s"]) == len(found["tasks"]["quick batch"]) <= MAX_SAMPLES
    gaps = {later - earlier for earlier, later in pairwise(found["at_s"])}
    assert gaps == {series.every_s}
    assert series.every_s > EVERY_S
