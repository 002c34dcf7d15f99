"""A row is a lane's lag and who works on it; what is not known stays unknown."""

from typing import Literal

from headway.cli.backlog import LaneLag, lane_lags
from schemas.base import Priority
from schemas.fleet import WorkerStatus
from schemas.models import ModelClass, queues
from services.autoscaler.domain.backlog import UNKNOWN, Behind

CLASS = ModelClass.model_validate({"backends": [{"name": "local", "engine": {"kind": "simulated"}}]})
(QUEUE,) = queues({"llm": CLASS})


def worker(
    state: Literal["starting", "warm"] = "warm", *, busy: int = 0, service_ms: float | None = 500.0, slots: int = 2
) -> WorkerStatus:
    return WorkerStatus(
        instance="w", host="h", model_class="llm", backend="local", state=state, slots=slots, busy=busy, ready_at=0,
        service_ms=service_ms,
    )  # fmt: skip


def lag(behind: Behind, *workers: WorkerStatus) -> LaneLag:
    """Of the batch lane."""
    (found,) = lane_lags(QUEUE, {Priority.BATCH: behind}, workers)
    return found


def test_a_row_for_each_lane_and_its_lag() -> None:
    lanes = {Priority.INTERACTIVE: Behind(7, 1.5), Priority.STANDARD: Behind(0, 0.0), Priority.BATCH: UNKNOWN}
    assert [(row.lane, row.tasks_behind, row.seconds_behind) for row in lane_lags(QUEUE, lanes, [worker()])] == [
        ("interactive", 7, 1.5),
        ("standard", 0, 0.0),
        ("batch", None, None),
    ]


def test_it_drains_by_the_slots_of_warm_workers() -> None:
    row = lag(Behind(8, 60.0), worker(service_ms=500), worker(service_ms=1_500), worker("starting", slots=50))
    assert row.drain_seconds == 8 * 1.0 / 4
    assert (row.replicas, row.slots) == (2, 4)


def test_without_a_status_only_the_lag_is_known() -> None:
    row = lag(Behind(8, 60.0))
    assert (row.tasks_behind, row.seconds_behind) == (8, 60.0)
    assert (row.drain_seconds, row.replicas, row.busy_slots, row.slots) == (None, None, None, None)


def test_without_a_measured_service_time_only_no_work_drains_in_a_known_time() -> None:
    assert lag(Behind(8, 60.0), worker(service_ms=None)).drain_seconds is None
    assert lag(Behind(0, 0.0), worker(service_ms=None)).drain_seconds == 0.0


def test_an_unknown_lag_drains_in_an_unknown_time() -> None:
    assert lag(UNKNOWN, worker()).drain_seconds is None


def test_workers_that_are_all_starting_are_zero_replicas_not_unknown() -> None:
    row = lag(Behind(0, 0.0), worker("starting"))
    assert (row.replicas, row.busy_slots, row.drain_seconds) == (0, 0, None)
