"""The pieces of a run sum to what its response says: one log, accounted for by the aggregator and by us."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.accounts import ADMISSION, END, Stretch, cost_by, stretches
from headway.cli.timeline import Timeline, timeline
from services.aggregator.domain.outcomes import Mapped, finish
from tests.unit.aggregator.log import T0, Log, gate, graph, model
from tests.unit.aggregator.playing import Script, play, scripts


def told(log: Log, *, over: bool = True) -> Timeline:
    """The timeline of all that was appended, with the outcome if the run is over."""
    if over:
        log.append(finish(log.run, Mapped("answer")))
    run = timeline(log.records)
    assert run is not None
    return run


def diamond() -> Log:
    """a is waited for; c is tried again after 400 ms, waits 20 ms in its queue and 5 ms for a cold worker."""
    log = Log()
    log.start()
    log.done("b", after_ms=39, service_ms=30.0, task_at=T0 + 5, model_class="embedding")
    log.done("a", after_ms=60, service_ms=80.0, task_at=T0 + 10)
    log.fail("c", retryable=True, after_ms=40)
    log.tick(400)
    log.done("c", attempt=2, after_ms=250, service_ms=200.0, cold_ms=5.0, task_at=T0 + 565)
    return log


def test_each_stretch_begins_where_the_one_before_it_was_over() -> None:
    assert stretches(told(diamond())) == (
        Stretch(ADMISSION, coordination_ms=1),
        Stretch("a", queue_ms=10.0, service_ms=80.0, coordination_ms=9.0),
        Stretch("c", queue_ms=20.0, cold_ms=5.0, service_ms=200.0, coordination_ms=465.0),
        Stretch(END, coordination_ms=0.0),
    )


def test_a_run_on_its_way_is_accounted_for_up_to_its_newest_event() -> None:
    log = Log()
    log.start(graph(model("a"), model("b", "a")))
    log.done("a", after_ms=30, service_ms=20.0, task_at=T0 + 5)
    log.tick(50)
    *_, open_step = stretches(told(log, over=False))
    assert open_step == Stretch("b", coordination_ms=50.0)


def test_a_step_that_ran_out_of_time_has_no_known_end_and_the_whole_still_sums() -> None:
    log = Log()
    log.start(graph(model("a", timeout_ms=1_000, max_attempts=1)))
    log.tick(2_500)
    run = told(log)
    assert run.response is not None
    assert [piece.coordination_ms for piece in stretches(run)] == [1.0, None, 2_500.0]


def test_a_run_without_a_step_that_was_over_has_no_path() -> None:
    log = Log()
    log.start()
    log.cancel()
    assert stretches(told(log)) == ()


def test_cost_is_told_by_step_and_by_class_with_what_came_to_nothing() -> None:
    run = told(diamond())
    assert cost_by(run, lambda charge: charge.step) == {"a": 0.5, "b": 0.5, "c": 0.75}
    assert cost_by(run, lambda charge: charge.model_class) == {"llm": 1.25, "embedding": 0.5}


def test_what_comes_after_the_decision_costs_nothing() -> None:
    log = Log()
    log.start(graph(gate("safe"), model("a")))
    log.done("safe", value=False, model_class=None, cost_usd=0.0)
    log.done("a")
    assert cost_by(told(log), lambda charge: charge.step) == {}


@given(scripts(), st.randoms(use_true_random=False))
def test_the_pieces_sum_to_the_response_of_any_run(script: Script, luck: Random) -> None:
    run = told(play(script, luck).log)
    assert run.response is not None
    timing, pieces = run.response.timing, stretches(run)
    if not timing.critical_path:
        return
    assert [piece.of for piece in pieces[1:-1]] == list(timing.critical_path)
    for part in ("queue_ms", "cold_ms", "service_ms", "coordination_ms"):
        total = sum(getattr(piece, part) or 0.0 for piece in pieces)
        assert total == pytest.approx(getattr(timing, part), abs=0.01), part
    assert sum(cost_by(run, lambda charge: charge.step).values()) == pytest.approx(run.response.usage.cost_usd)
