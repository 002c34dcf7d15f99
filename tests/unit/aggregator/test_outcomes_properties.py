"""Responses and bills of any run: they add up, and are read back as they were written."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import EVENT
from services.aggregator.domain.outcomes import Mapped, critical_path, finish, timing
from services.aggregator.domain.state import Attempt
from tests.unit.aggregator.playing import Script, play, scripts

DURATIONS_MS = st.floats(0, 1e15, allow_nan=False)


@given(scripts(), st.randoms(use_true_random=False))
def test_the_bill_is_what_the_answered_attempts_cost(script: Script, luck: Random) -> None:
    played = play(script, luck)
    usage = finish(played.log.run, Mapped()).usage
    completed = sum(state.output is not None for state in played.log.run.steps.values())
    skipped = sum(state.status == "skipped" for state in played.log.run.steps.values())
    failed = played.answered - completed - skipped
    assert usage.cost_usd == 0.5 * completed + 0.25 * failed
    assert sum(cost.attempts for cost in usage.by_step.values()) == completed + failed


@given(scripts(), st.randoms(use_true_random=False), st.integers(-10_000, 10_000), DURATIONS_MS, DURATIONS_MS)
def test_the_parts_of_the_time_are_never_negative_and_sum_to_the_total(
    script: Script, luck: Random, off_ms: int, service_ms: float, cold_ms: float
) -> None:
    """Whatever workers say of their times, and wherever the broker's clock went meanwhile."""
    log = play(script, luck).log
    won = Attempt(log.now + off_ms, service_ms, cold_ms)
    run = replace(log.run, steps={step_id: replace(state, won=won) for step_id, state in log.run.steps.items()})
    found = timing(run, log.now + off_ms)
    parts = (found.queue_ms, found.cold_ms, found.service_ms, found.coordination_ms)
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(found.total_ms, abs=0.01)


@given(scripts(), st.randoms(use_true_random=False))
def test_the_critical_path_is_a_chain_of_needs_up_to_the_step_that_was_over_last(
    script: Script, luck: Random
) -> None:
    run = play(script, luck).log.run
    path = critical_path(run)
    needs = {step.id: step.needs for step in script.graph.steps}
    over = {step_id: state.over_at for step_id, state in run.steps.items() if state.is_over}
    assert bool(path) == bool(over)
    for earlier, later in pairwise(path):
        assert earlier in needs[later]
        assert over[earlier] == max(over[need] for need in needs[later])
    if path:
        assert not needs[path[0]]
        assert over[path[-1]] == max(over.values())


@given(scripts(), st.randoms(use_true_random=False), st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_an_outcome_is_read_back_as_it_was_written(script: Script, luck: Random, value: object) -> None:
    outcome = finish(play(script, luck).log.run, Mapped(value))
    written = EVENT.dump_json(outcome)
    assert EVENT.validate_json(written) == outcome
    assert EVENT.dump_json(EVENT.validate_json(written)) == written
