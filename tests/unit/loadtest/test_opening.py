"""Runs written straight into the log are what the aggregator would have made of requests, and stay open."""

from loadtest.opening import completed, opened
from schemas.base import StepStatus
from services.aggregator.domain.decisions import Dispatch
from services.aggregator.domain.fold import LogRecord, fold
from services.aggregator.domain.packing import open_run
from services.aggregator.domain.state import Partition

NOW, HOUR = 1_000_000, 3_600_000


def test_an_opened_run_waits_for_its_second_step_until_its_deadline() -> None:
    started = opened("one", NOW)
    partition, first = fold(Partition.empty(HOUR), LogRecord(NOW, started))
    partition, second = fold(partition, LogRecord(NOW + 1, completed(started, output_bytes=2_000)))
    assert [d.ready.step.id for d in (*first, *second) if isinstance(d, Dispatch)] == ["done", "open"]
    run = open_run(partition, started.run_id)
    assert run is not None
    assert {name: state.status for name, state in run.steps.items()} == {
        "done": StepStatus.SUCCEEDED,
        "open": StepStatus.READY,
    }
    assert run.next_due == NOW + HOUR
