"""Snapshots: what goes in comes out, and whatever is not one of ours is refused."""

import dataclasses

import pytest

from schemas.base import RunStatus
from schemas.events import RunCancelled
from services.aggregator.domain.fold import LogRecord, fold
from services.aggregator.domain.outcomes import Mapped, finish
from services.aggregator.domain.packing import open_run
from services.aggregator.domain.snapshot import Tail, UnusableSnapshotError, decode, encode, longest_due
from services.aggregator.domain.state import PackedRun, Partition, Run
from tests.unit.aggregator.log import DIAMOND, OPTIONAL, WINDOW_MS, Log, rejected, started


def unpacked(partition: Partition) -> dict[str, object]:
    """A partition with every run unpacked, to compare."""
    fields = {field.name: getattr(partition, field.name) for field in dataclasses.fields(partition)}
    return {**fields, "open": {run_id: open_run(partition, run_id) for run_id in partition.open}}


def lively() -> Log:
    """A log with a run of every kind: open, retrying, closing, rejected, finished, and one cancelled unborn."""
    log = Log()
    log.start(OPTIONAL, request_id="done")
    for run_id, run in list(log.partition.open.items()):
        assert isinstance(run, Run)
        log.append(finish(run.closed(RunStatus.SUCCEEDED, log.now), Mapped({"a": 1})))
        assert run_id not in log.partition.open
    log.append(rejected(request_id="refused"))
    log.append(RunCancelled(run_id="unborn\n", tenant="acme", cancelled_by="ops, of \n course"))
    log.start(DIAMOND, request_id="cancelled")
    log.cancel(started(request_id="cancelled").run_id)
    log.start(DIAMOND, labels={"a": "b"}, session="s", correlation_id="c", variants={"a": "x"})
    log.done("a", {"x": [1, 2.5, None, "é\n"]})
    log.fail("b", retryable=True)
    return log


def test_a_snapshot_holds_the_whole_state() -> None:
    log = lively()
    content = b"".join(encode(log.partition, 3, 17))
    assert unpacked(decode(content, 3, 17, WINDOW_MS)) == unpacked(log.partition)


def test_the_fold_goes_on_from_a_snapshot_as_from_the_state_itself() -> None:
    log = lively()
    taken = decode(b"".join(encode(log.partition, 3, 17)), 3, 17, WINDOW_MS)
    later = Log()
    later.partition, later.now = taken, log.now
    for each in (log, later):
        each.decisions.clear()
        each.done("b", "late")
        each.tick(after_ms=500)
        each.done("b", "on time", attempt=2)
        each.done("c")
        each.start(DIAMOND, request_id="done")
        each.start(DIAMOND, request_id="cancelled")
        each.tick(after_ms=60_000)
    assert later.decisions == log.decisions
    assert unpacked(later.partition) == unpacked(log.partition)
    assert [type(decision).__name__ for decision in log.decisions] == ["Dispatch", "Finish", "Finish"]


def test_runs_stay_packed_until_something_happens_to_them() -> None:
    log = lively()
    taken = decode(b"".join(encode(log.partition, 0, 0)), 0, 0, WINDOW_MS)
    assert all(isinstance(run, PackedRun) for run in taken.open.values())
    assert {run_id: run.next_due for run_id, run in taken.open.items()} == {
        run_id: run.next_due for run_id, run in log.partition.open.items()
    }
    again = b"".join(encode(taken, 0, 0))
    assert unpacked(decode(again, 0, 0, WINDOW_MS)) == unpacked(log.partition)


def test_a_state_without_any_run_is_a_snapshot_too() -> None:
    empty = Partition.empty(WINDOW_MS)
    assert decode(b"".join(encode(empty, 0, 5)), 0, 5, WINDOW_MS) == empty


def test_what_is_no_snapshot_of_this_partition_and_offset_is_refused() -> None:
    content = b"".join(encode(lively().partition, 3, 17))
    for partition, as_of in ((4, 17), (3, 18)):
        with pytest.raises(UnusableSnapshotError, match="it is of partition 3 as of 17"):
            decode(content, partition, as_of, WINDOW_MS)


@pytest.mark.parametrize("field", [b'"format":1', b'"fold":1'])
def test_a_snapshot_of_a_newer_version_is_refused(field: bytes) -> None:
    content = b"".join(encode(lively().partition, 3, 17))
    newer = content.replace(field, field[:-1] + b"99")
    assert newer != content
    with pytest.raises(UnusableSnapshotError, match="newer version"):
        decode(newer, 3, 17, WINDOW_MS)


def test_a_damaged_snapshot_is_refused_wherever_it_was_cut() -> None:
    content = b"".join(encode(lively().partition, 3, 17))
    lines = content.count(b"\n")
    for kept in range(lines):
        cut = b"\n".join(content.split(b"\n")[:kept])
        with pytest.raises(UnusableSnapshotError):
            decode(cut, 3, 17, WINDOW_MS)


def test_the_fold_unpacks_what_it_touches() -> None:
    log = lively()
    taken = decode(b"".join(encode(log.partition, 0, 0)), 0, 0, WINDOW_MS)
    event = RunCancelled(run_id=Log.run_id, tenant="acme", cancelled_by="ops")
    after, decisions = fold(taken, LogRecord(log.now + 1, event))
    assert len(decisions) == 1
    assert isinstance(after.open[Log.run_id], Run)


def test_the_longest_tail_is_written_first_once_all_together_are_long() -> None:
    tails = {0: Tail(9_000, 1.0), 1: Tail(6_000, 9.0), 2: Tail(0, 99.0)}
    assert longest_due(tails, every_s=30.0) is None
    assert longest_due({**tails, 1: Tail(6_001, 9.0)}, every_s=30.0) == 0


def test_a_partition_that_has_waited_is_due_if_anything_came() -> None:
    assert longest_due({0: Tail(9_000, 29.0), 1: Tail(1, 30.0), 2: Tail(0, 99.0)}, every_s=30.0) == 1
    assert longest_due({2: Tail(0, 99.0)}, every_s=30.0) is None


def test_thousands_of_remembered_runs_come_back() -> None:
    partition = Partition.empty(WINDOW_MS)
    for number in range(1_000):
        finished = partition.finished.remember(f"run {number}", f"digest {number}", number)
        partition = dataclasses.replace(partition, finished=finished)
    assert decode(b"".join(encode(partition, 0, 5)), 0, 5, WINDOW_MS) == partition
