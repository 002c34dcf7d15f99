"""Lag by lane, over any time, in bounded memory."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from aiokafka import TopicPartition

from loadtest.lags import EVERY_S, MAX_SAMPLES, LagSeries, behind_by_lane
from schemas.models import Backend, ModelClass, Queue, SimulatedEngine, queues


class Commit(NamedTuple):
    offset: int


class Broker:
    """Committed and end offsets, as the two clients give them."""

    def __init__(self, committed: dict[int, int], ends: dict[int, int]) -> None:
        self._committed = committed
        self._ends = ends

    async def list_consumer_group_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Commit]:
        assert group == "headway-worker-quick"
        return {tp: Commit(self._committed[tp.partition]) for tp in partitions if tp.partition in self._committed}

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._ends.get(tp.partition, 0) for tp in partitions}


@pytest.fixture
def queue() -> Queue:
    backend = Backend(name="local", engine=SimulatedEngine(kind="simulated"))
    (found,) = queues({"quick": ModelClass(backends=(backend,))})
    return found


async def test_a_lane_is_behind_by_what_its_partitions_are(queue: Queue) -> None:
    broker = Broker(committed={0: 10, 3: 5, 8: 7}, ends={0: 14, 3: 6, 5: 0, 8: 7})
    assert await behind_by_lane([queue], broker, broker) == {
        "quick interactive": 5,
        "quick standard": 0,
        "quick batch": 0,
    }


@pytest.mark.parametrize("committed", [{}, {4: -1}])
async def test_without_a_commit_everything_is_still_to_be_done(queue: Queue, committed: dict[int, int]) -> None:
    broker = Broker(committed, ends={4: 9})
    assert (await behind_by_lane([queue], broker, broker))["quick standard"] == 9


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
