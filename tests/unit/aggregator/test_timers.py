"""The index of timers: each run comes when it is due, and again while it stays due."""

from services.aggregator.domain.timers import REPEAT_MS, SLACK, Timers


def test_runs_come_in_the_order_of_their_timers_and_not_before() -> None:
    timers = Timers()
    for run_id, due in (("late", 300), ("soon", 100), ("next", 200)):
        timers.schedule(run_id, due)
    assert timers.pop_due(99, 10) == []
    assert timers.pop_due(250, 10) == ["soon", "next"]


def test_a_timer_that_moved_counts_only_where_it_is_now() -> None:
    timers = Timers()
    timers.schedule("run", 100)
    timers.schedule("run", 500)
    timers.schedule("run", 500)
    assert timers.pop_due(499, 10) == []
    assert timers.pop_due(500, 10) == ["run"]


def test_a_run_without_timers_never_comes() -> None:
    timers = Timers()
    timers.schedule("run", 100)
    timers.schedule("run", None)
    timers.schedule("other", None)
    assert timers.pop_due(1_000, 10) == []


def test_a_tick_that_changed_nothing_is_repeated() -> None:
    timers = Timers()
    timers.schedule("run", 100)
    assert timers.pop_due(100, 10) == ["run"]
    assert timers.pop_due(100 + REPEAT_MS - 1, 10) == []
    assert timers.pop_due(100 + REPEAT_MS, 10) == ["run"]


def test_no_more_than_the_limit_come_at_once() -> None:
    timers = Timers()
    for number in range(5):
        timers.schedule(f"run-{number}", number)
    assert timers.pop_due(10, 3) == ["run-0", "run-1", "run-2"]
    assert timers.pop_due(10, 3) == ["run-3", "run-4"]


def test_runs_that_end_early_do_not_pile_up_until_their_deadlines() -> None:
    timers = Timers()
    timers.schedule("stays", 50)
    for number in range(10 * SLACK):
        timers.schedule(f"run-{number}", 1_000_000 + number)
        timers.schedule(f"run-{number}", None)
    assert timers.size <= SLACK + 3
    assert timers.pop_due(100, 10) == ["stays"]
