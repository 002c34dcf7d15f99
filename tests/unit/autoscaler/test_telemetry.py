"""What `/metrics` tells: everything that is known, by the names that other tools know, and nothing else."""

from collections.abc import Iterator

import pytest

from schemas.fleet import ScalingDecision, WorkerStatus
from services.autoscaler.domain.control import Control, Scaled
from services.autoscaler.domain.false_warms import Tally
from services.autoscaler.domain.learned import LearnedQueue, LearnedState
from services.autoscaler.telemetry import Telemetry
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import TopicPartition
from services.chassis.metrics import Metrics
from tests.unit.autoscaler.lagging import Lagging

TASKS = "inference-tasks-llm"
OWN = ("headway_", "kafka_")


class Page:
    """The samples of a process's `/metrics`, by name and labels as they stand there."""

    def __init__(self) -> None:
        self._metrics = Metrics()
        self.telemetry = Telemetry(self._metrics, Connection("", topic_prefix="t.", group_prefix="g."))

    def samples(self) -> dict[str, float]:
        return dict(self._lines())

    def _lines(self) -> Iterator[tuple[str, float]]:
        for line in self._metrics.exposition().decode().splitlines():
            if line.startswith(OWN):
                name, _, value = line.rpartition(" ")
                yield name, float(value)


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
async def lagging() -> Lagging:
    found = Lagging()
    found.commit(0, 0)
    await found.look_for(1)
    found.publish(0, 3)
    found.publish(9)
    found.commit(0, 1)
    await found.look_for(1)
    return found


def lane(metric: str, name: str) -> str:
    return f'{metric}{{backend="local",lane="{name}",model_class="llm"}}'


async def test_lanes_are_told_in_tasks_and_seconds(page: Page, lagging: Lagging) -> None:
    page.telemetry.show(lagging.collector.fresh())
    found = page.samples()
    assert {name: found[lane("headway_lag_tasks", name)] for name in ("interactive", "standard", "batch")} == {
        "interactive": 2,
        "standard": 0,
        "batch": 1,
    }
    assert found[lane("headway_lag_seconds", "batch")] == 0.5
    assert found['headway_watermark_age_seconds{service="aggregator"}'] == 0


async def test_groups_and_partitions_are_told_as_the_broker_names_them(page: Page, lagging: Lagging) -> None:
    page.telemetry.show(lagging.collector.fresh())
    found = page.samples()
    first, last = f'partition="0",topic="t.{TASKS}"', f'partition="9",topic="t.{TASKS}"'
    group = 'consumergroup="g.headway-worker-llm"'
    assert found[f"kafka_consumergroup_lag{{{group},{first}}}"] == 2
    assert found[f"kafka_consumergroup_current_offset{{{group},{first}}}"] == 1
    assert found[f"kafka_topic_partition_current_offset{{{first}}}"] == 3
    assert found[f"kafka_consumergroup_lag{{{group},{last}}}"] == 1
    assert f"kafka_consumergroup_current_offset{{{group},{last}}}" not in found, "it has no commit there"


async def test_with_the_broker_away_nothing_is_told(page: Page, lagging: Lagging) -> None:
    page.telemetry.show(lagging.collector.fresh())
    assert page.samples()
    lagging.now_s += 5
    page.telemetry.show(lagging.collector.fresh())
    assert page.samples() == {}


async def test_what_cannot_be_read_is_absent_not_zero(page: Page, lagging: Lagging) -> None:
    lagging.broker.silent.add(TopicPartition(TASKS, 1))
    await lagging.look_for(1)
    page.telemetry.show(lagging.collector.fresh())
    found = page.samples()
    assert lane("headway_lag_tasks", "interactive") not in found
    assert lane("headway_lag_seconds", "interactive") not in found
    assert found[lane("headway_lag_tasks", "batch")] == 1
    assert not any('partition="1"' in name and TASKS in name for name in found)


def test_workers_are_told_by_state_and_those_to_be_kept(page: Page, lagging: Lagging) -> None:
    worker = WorkerStatus(
        instance="w", host="h", model_class="llm", backend="local", state="warm", slots=1, busy=0, ready_at=0
    )
    decided = [ScalingDecision(instance="a", epoch=1, queue="llm", replicas=2, because="the load")]
    labels = 'backend="local",model_class="llm"'
    page.telemetry.show_fleet([lagging.queue], [worker], decided)
    found = page.samples()
    assert found[f'headway_replicas{{{labels},state="warm"}}'] == 1
    assert found[f'headway_replicas{{{labels},state="asleep"}}'] == 0
    assert found[f"headway_desired_replicas{{{labels}}}"] == 2
    page.telemetry.show_fleet([], [], [])
    assert page.samples() == {}


def test_what_was_done_ahead_is_counted_through_all_reigns(page: Page, lagging: Lagging) -> None:
    prewarms = 'headway_prewarms_total{model_class="llm"}'
    in_vain = 'headway_prewarms_in_vain_total{model_class="llm"}'
    page.telemetry.show_foresight([lagging.queue], None)
    assert (page.samples()[prewarms], page.samples()[in_vain]) == (0, 0)
    for expected in ((3, 1), (6, 2)):
        control = Control()
        control.watch([Scaled.of(lagging.queue)])
        control.false_warms.tallies["llm"] = Tally(started=2)
        page.telemetry.show_foresight([lagging.queue], control)
        control.false_warms.tallies["llm"] = Tally(started=3, in_vain=1)
        page.telemetry.show_foresight([lagging.queue], control)
        assert (page.samples()[prewarms], page.samples()[in_vain]) == expected


def test_a_prediction_tells_how_far_off_it_was_once_something_came(page: Page, lagging: Lagging) -> None:
    error = 'headway_prediction_error_ratio{backend="local",model_class="llm"}'
    learned = LearnedQueue(accuracy=(2.0, 10.0))
    for known, shown in ((LearnedQueue(), None), (learned, 0.2)):
        control = Control(before=LearnedState(queues={"llm": known}))
        control.watch([Scaled.of(lagging.queue)])
        page.telemetry.show_foresight([lagging.queue], control)
        assert page.samples().get(error) == shown
