"""What moved between two looks at the metrics pages."""

import pytest

from headway.cli.scrapes import Process, Scrape, Series
from headway.cli.window import Movement, Window, quantile
from schemas.metrics import LAG_TASKS, RESPONSES_TOTAL, RUN_SECONDS, SLOTS_BUSY

ONE, OTHER = Process("one", ""), Process("host", "llm-1")
INFINITY = float("inf")


def responses(status: str) -> Series:
    return "headway_responses_total", (("pipeline", "ask"), ("status", status))


def bucket(bound: str) -> Series:
    return "headway_run_seconds_bucket", (("le", bound), ("pipeline", "ask"), ("status", "succeeded"))


def looks(*counts: tuple[float, dict[Process, dict[Series, float]]]) -> Movement:
    window = Window(60.0)
    moved = [window.add(Scrape(at_s, processes)) for at_s, processes in counts]
    return moved[-1]


def test_a_counter_rises_by_what_was_added_over_all_processes() -> None:
    moved = looks(
        (10.0, {ONE: {responses("succeeded"): 5.0}, OTHER: {responses("succeeded"): 100.0}}),
        (14.0, {ONE: {responses("succeeded"): 13.0}, OTHER: {responses("succeeded"): 104.0}}),
    )
    assert moved.seconds == 4.0
    assert moved.per_second(RESPONSES_TOTAL, "pipeline", "status") == {("ask", "succeeded"): 3.0}
    assert moved.per_second(RESPONSES_TOTAL) == {(): 3.0}


def test_a_series_that_appears_has_begun_at_zero_and_so_has_one_of_a_new_process() -> None:
    moved = looks(
        (0.0, {ONE: {responses("succeeded"): 9.0}}),
        (2.0, {ONE: {responses("succeeded"): 4.0, responses("failed"): 2.0}}),
    )
    assert moved.per_second(RESPONSES_TOTAL, "status") == {("succeeded",): 2.0, ("failed",): 1.0}


def test_nothing_is_said_of_a_process_seen_once() -> None:
    moved = looks((0.0, {}), (2.0, {ONE: {responses("succeeded"): 900.0}}))
    assert moved.per_second(RESPONSES_TOTAL, "status") == {}


def test_what_is_older_than_the_window_is_forgotten() -> None:
    counts = [(at, {ONE: {responses("succeeded"): at * at}}) for at in (0.0, 30.0, 60.0, 90.0, 120.0)]
    moved = looks(*counts)
    assert moved.seconds == 60.0
    assert moved.per_second(RESPONSES_TOTAL) == {(): (120.0**2 - 60.0**2) / 60.0}


def test_workers_sum_and_what_each_collector_tells_does_not() -> None:
    busy, lag = ("headway_slots_busy", (("model_class", "llm"),)), ("headway_lag_tasks", (("model_class", "llm"),))
    moved = looks((0.0, {ONE: {busy: 2.0, lag: 7.0}, OTHER: {busy: 3.0, lag: 8.0}}))
    assert moved.now(SLOTS_BUSY, "model_class") == {("llm",): 5.0}
    assert moved.told(LAG_TASKS, "model_class") == {("llm",): 8.0}


def test_quantiles_are_of_what_was_observed_since_the_first_look() -> None:
    moved = looks(
        (0.0, {ONE: {bucket("0.1"): 1_000.0, bucket("0.5"): 1_000.0, bucket("+Inf"): 1_000.0}}),
        (5.0, {ONE: {bucket("0.1"): 1_000.0, bucket("0.5"): 1_010.0, bucket("+Inf"): 1_010.0}}),
    )
    (found,) = moved.quantiles(RUN_SECONDS, (0.5, 0.95), "pipeline").values()
    assert found == pytest.approx([0.3, 0.48])


def test_there_is_no_quantile_of_nothing() -> None:
    same = {ONE: {bucket("0.1"): 3.0, bucket("+Inf"): 3.0}}
    assert looks((0.0, same), (5.0, same)).quantiles(RUN_SECONDS, (0.5,), "pipeline") == {}


@pytest.mark.parametrize(
    ("share", "cumulative", "found"),
    [
        (0.5, {1.0: 4.0, 2.0: 4.0, INFINITY: 4.0}, 0.5),
        (0.5, {1.0: 0.0, 2.0: 4.0, INFINITY: 4.0}, 1.5),
        (0.9, {1.0: 1.0, 2.0: 1.0, INFINITY: 10.0}, 2.0),
        (1.0, {1.0: 2.0, 2.0: 2.0, INFINITY: 2.0}, 1.0),
    ],
)
def test_a_quantile_lies_within_its_bucket(share: float, cumulative: dict[float, float], found: float) -> None:
    assert quantile(share, cumulative) == pytest.approx(found)
