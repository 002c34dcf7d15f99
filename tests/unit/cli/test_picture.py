"""The picture of a plane is what its services have counted; what nobody tells is unknown."""

import io

import pytest
from rich.console import Console

from headway.cli.picture import LaneNow, Picture, picture
from headway.cli.scrapes import Process, Scrape, Series
from headway.cli.screen import busy_lanes, drawn
from headway.cli.window import Movement

AGGREGATOR, AUTOSCALER, WORKER = Process("a", ""), Process("s", ""), Process("h", "llm-1")
Counted = dict[Process, dict[Series, float]]


def series(name: str, **labels: str) -> Series:
    return f"headway_{name}", tuple(sorted(labels.items()))


def of_llm(name: str, **labels: str) -> Series:
    return series(name, model_class="llm", backend="local", **labels)


def histogram(name: str, seconds: float, count: float, **labels: str) -> dict[Series, float]:
    """So many observations, all in the bucket that ends at `seconds`; the one before it ends at half of that."""
    bounds = {str(seconds / 2): 0.0, str(seconds): count, "+Inf": count}
    return {series(f"{name}_bucket", le=bound, **labels): value for bound, value in bounds.items()}


def seen(before: Counted, after: Counted, *silent: str) -> Picture:
    """What is shown of two looks, ten seconds apart."""
    return picture(Movement([Scrape(0.0, before), Scrape(10.0, after, silent)]))


def lane(found: Picture, name: str = "interactive") -> LaneNow:
    return next(row for row in found.lanes if row.lane == name)


def worker(tasks: float, failed: float, cost: float) -> Counted:
    queue = {"model_class": "llm", "backend": "local"}
    return {
        WORKER: {
            of_llm("slots"): 8.0,
            of_llm("slots_busy"): 3.0,
            of_llm("tasks_total", lane="interactive", outcome="succeeded"): tasks,
            of_llm("tasks_total", lane="interactive", outcome="failed"): failed,
            of_llm("tasks_total", lane="batch", outcome="succeeded"): 7.0,
            series("cost_usd_total", pipeline="ask", model_class="llm", kind="busy"): cost,
            series("cost_usd_total", pipeline="", model_class="llm", kind="idle"): cost / 5,
            **histogram("task_queue_seconds", 0.2, tasks, lane="interactive", **queue),
            **histogram("task_service_seconds", 2.0, tasks, **queue),
        }
    }


def collector(**states: float) -> Counted:
    return {
        AUTOSCALER: {
            of_llm("lag_tasks", lane="interactive"): 12.0,
            of_llm("lag_seconds", lane="interactive"): 1.5,
            of_llm("lag_tasks", lane="batch"): 0.0,
            of_llm("lag_seconds", lane="batch"): 0.0,
            **{of_llm("replicas", state=state): count for state, count in states.items()},
        }
    }


def aggregator(**runs: float) -> Counted:
    counts = {series("responses_total", pipeline="ask", status=status): count for status, count in runs.items()}
    times = histogram("run_seconds", 1.0, sum(runs.values()), pipeline="ask", status="succeeded")
    return {AGGREGATOR: counts | times | {series("open_runs", partition="0"): 4.0}}


def test_a_lane_tells_how_far_it_is_behind_and_what_it_did() -> None:
    found = seen(worker(100, 0, 0.0), worker(130, 10, 0.0) | collector(warm=1.0, asleep=2.0, draining=0.0))
    row = lane(found)
    assert (row.model_class, row.tasks_behind, row.seconds_behind) == ("llm", 12, 1.5)
    assert (row.tasks_per_second, row.failed_share) == (4.0, 0.25)
    assert (row.busy_slots, row.slots) == (3, 8)
    assert (row.wait_p50_ms, row.wait_p95_ms) == pytest.approx((150.0, 195.0))
    assert (row.service_p50_ms, row.service_p95_ms) == pytest.approx((1_500.0, 1_950.0))
    assert row.replicas == {"warm": 1, "asleep": 2, "draining": 0}


def test_what_nobody_tells_is_unknown() -> None:
    found = seen(worker(100, 0, 0.0), worker(100, 0, 0.0), "autoscaler", "aggregator")
    row = lane(found)
    assert (row.tasks_behind, row.seconds_behind, row.replicas) == (None, None, None)
    assert row.tasks_per_second == 0.0, "that nothing ended is known"
    assert (row.failed_share, row.wait_p95_ms, row.service_p95_ms) == (None, None, None), "of nothing"
    assert lane(found, "standard").tasks_per_second is None, "a lane that its workers do not count"
    assert (found.asleep, found.open_runs) == (None, None)
    assert found.silent == ("autoscaler", "aggregator")


def test_a_pipeline_tells_its_runs_and_their_cost() -> None:
    before = worker(0, 0, 1.0) | aggregator(succeeded=10.0, failed=0.0, partial=0.0)
    after = worker(0, 0, 1.5) | aggregator(succeeded=24.0, failed=4.0, expired=1.0, partial=1.0)
    found = seen(before, after)
    (row,) = found.pipelines
    assert (row.pipeline, row.runs_per_second, row.promised_ms) == ("ask", 2.0, None)
    assert (row.partial_share, row.failed_share) == (0.05, 0.25)
    assert (row.p50_ms, row.p95_ms) == pytest.approx((750.0, 975.0))
    assert (row.cost_usd_per_hour, row.cost_usd_per_run) == pytest.approx((180.0, 0.025))
    assert (found.cost_usd_per_hour, found.idle_usd_per_hour, found.open_runs) == pytest.approx((216.0, 36.0, 4))


@pytest.mark.parametrize(
    ("states", "asleep"),
    [
        ({"warm": 0.0, "asleep": 1.0}, ("llm",)),
        ({"warm": 0.0, "asleep": 0.0}, ("llm",)),
        ({"warm": 0.0, "asleep": 1.0, "starting": 1.0}, ()),
        ({"warm": 1.0, "asleep": 3.0}, ()),
    ],
)
def test_a_class_is_asleep_when_nobody_is_there(states: dict[str, float], asleep: tuple[str, ...]) -> None:
    assert seen({}, collector(**states)).asleep == asleep


def test_backends_of_one_class_are_told_apart() -> None:
    both = {WORKER: {series("slots", model_class="llm", backend=name): 1.0 for name in ("local", "burst")}}
    assert {row.model_class for row in seen(both, both).lanes} == {"llm.local", "llm.burst"}


def test_a_screen_leaves_out_lanes_with_nothing_to_do_but_no_class() -> None:
    quiet = {WORKER: {of_llm("tasks_total", lane=name, outcome="succeeded"): 7.0 for name in ("standard", "batch")}}
    told = {AUTOSCALER: {of_llm("lag_tasks", lane=name): 0.0 for name in ("interactive", "standard", "batch")}}
    found = seen(quiet, quiet | told)
    assert [row.lane for row in busy_lanes(found.lanes)] == ["interactive"], "nobody counts it: it may be busy"
    counted = {of_llm("tasks_total", lane="interactive", outcome="succeeded"): 7.0} | quiet[WORKER]
    found = seen({WORKER: counted}, {WORKER: counted} | told)
    assert [row.lane for row in busy_lanes(found.lanes)] == ["interactive"], "a class has one row at least"


def test_a_screen_never_shows_zero_for_what_is_not_known() -> None:
    before, after = worker(100, 0, 0.0), worker(100, 0, 0.0) | {AGGREGATOR: {series("open_runs", partition="0"): 0.0}}
    out = io.StringIO()
    screen = Console(width=200, file=out)
    for part in drawn(seen(before, after, "autoscaler")):
        screen.print(part)
    text = out.getvalue()
    assert "no answer from autoscaler" in text
    assert "last 10 s · 0 open runs · $0.000000 per hour, $0.000000 of it idle · asleep: –" in text
    interactive = next(row for row in text.splitlines() if "interactive" in row)
    assert interactive.split() == ["llm", "interactive", "–", "–", "0.0", "–", "–", "–", "3/8", "–", "–", "–"]
