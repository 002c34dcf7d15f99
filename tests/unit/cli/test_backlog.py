"""Lag is tasks and seconds by lane; what is not known stays unknown."""

from typing import Literal

from headway.cli.backlog import LaneLag, lane_lags
from schemas.fleet import WorkerStatus
from schemas.models import ModelClass, Queue, queues

CLASS = ModelClass.model_validate(
    {"backends": [{"name": "local", "engine": {"kind": "simulated"}}], "lanes": {"standard": "4", "batch": "5-6"}}
)
(QUEUE,) = queues({"llm": CLASS})


def worker(
    state: Literal["starting", "warm"] = "warm", *, busy: int = 0, service_ms: float | None = 500.0, slots: int = 2
) -> WorkerStatus:
    return WorkerStatus(
        instance="w", host="h", model_class="llm", backend="local", state=state, slots=slots, busy=busy, ready_at=0,
        service_ms=service_ms,
    )  # fmt: skip


def lags(behind: dict[int, int | None], *workers: WorkerStatus, queue: Queue = QUEUE) -> dict[str, LaneLag]:
    return {lag.lane: lag for lag in lane_lags(queue, behind, workers)}


NOTHING: dict[int, int | None] = dict.fromkeys(range(7), 0)


def test_tasks_add_up_over_the_partitions_of_a_lane() -> None:
    found = lags(NOTHING | {0: 3, 3: 4, 4: 1, 6: 9}, worker())
    assert {lane: lag.tasks_behind for lane, lag in found.items()} == {"interactive": 7, "standard": 1, "batch": 9}


def test_one_unreadable_partition_makes_its_lane_unknown_and_no_other() -> None:
    found = lags(NOTHING | {0: None, 5: 2}, worker())
    assert (found["interactive"].tasks_behind, found["interactive"].seconds_behind) == (None, None)
    assert found["batch"].tasks_behind == 2
    assert lags({}, worker())["batch"].tasks_behind is None


def test_seconds_are_work_over_the_slots_of_warm_workers() -> None:
    two = lags(NOTHING | {5: 8}, worker(service_ms=500), worker(service_ms=1_500), worker("starting", slots=50))
    assert two["batch"].seconds_behind == 8 * 1.0 / 4
    assert (two["batch"].replicas, two["batch"].slots) == (2, 4)


def test_without_a_status_only_the_tasks_are_known() -> None:
    lag = lags(NOTHING | {5: 8})["batch"]
    assert (lag.tasks_behind, lag.seconds_behind, lag.replicas, lag.busy_slots, lag.slots) == (
        8,
        None,
        None,
        None,
        None,
    )


def test_work_without_a_measured_service_time_has_no_seconds_and_no_work_has_none() -> None:
    found = lags(NOTHING | {5: 8}, worker(service_ms=None))
    assert found["batch"].seconds_behind is None
    assert found["standard"].seconds_behind == 0.0


def test_workers_that_are_all_starting_are_zero_replicas_not_unknown() -> None:
    lag = lags(NOTHING, worker("starting"))["batch"]
    assert (lag.replicas, lag.busy_slots, lag.seconds_behind) == (0, 0, None)
