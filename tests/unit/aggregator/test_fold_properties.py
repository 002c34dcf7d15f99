"""Whole runs without faults, against what their scripts say must come out."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from schemas.base import RunStatus, StepStatus
from schemas.graphs import OnFailure
from tests.unit.aggregator.playing import Played, Script, play, scripts


def fatal(script: Script) -> bool:
    """Whether some step ends the run: every step is tried in the end, whatever became of those before it."""
    return any(
        script.end_of(step)[0] is StepStatus.FAILED and step.on_failure is OnFailure.FAIL
        for step in script.graph.steps
    )


def ends(played: Played) -> dict[str, tuple[StepStatus, int]]:
    return {step_id: (state.status, state.attempt) for step_id, state in played.log.run.steps.items()}


@given(scripts(), st.randoms(use_true_random=False))
def test_a_run_ends_as_its_steps_say(script: Script, luck: Random) -> None:
    played = play(script, luck)
    if fatal(script):
        assert played.log.status is RunStatus.FAILED
        return
    expected = {step.id: script.end_of(step) for step in script.graph.steps}
    assert ends(played) == expected
    lost = {step_id for step_id, (status, _) in expected.items() if status is StepStatus.FAILED}
    assert set(played.log.run.missing) == lost
    assert played.log.status is (RunStatus.PARTIAL if lost else RunStatus.SUCCEEDED)


@given(scripts(), st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_the_order_of_independent_results_does_not_matter(script: Script, luck: Random, other: Random) -> None:
    one, two = play(script, luck), play(script, other)
    assert one.log.status is two.log.status
    if not fatal(script):
        assert one.log.run.missing == two.log.run.missing
        for step_id, state in one.log.run.steps.items():
            twin = two.log.run.steps[step_id]
            assert (state.status, state.output, state.cost) == (twin.status, twin.output, twin.cost)
        assert Counter(ready.task_id for ready in one.ready) == Counter(ready.task_id for ready in two.ready)


@given(scripts(), st.randoms(use_true_random=False))
def test_a_step_is_dispatched_after_all_it_needs_and_attempt_by_attempt(script: Script, luck: Random) -> None:
    played = play(script, luck)
    needs = {step.id: step.needs for step in script.graph.steps}
    states = played.log.run.steps
    seen: Counter[str] = Counter()
    for ready in played.ready:
        seen[ready.step.id] += 1
        assert ready.attempt == seen[ready.step.id]
        assert all(states[need].is_over and states[need].over_at <= ready.ready_at for need in needs[ready.step.id])


@given(scripts(), st.randoms(use_true_random=False))
def test_a_step_whose_needs_are_over_never_waits(script: Script, luck: Random) -> None:
    """There are no waves: the record that ends the last need is the one that dispatches."""
    played = play(script, luck)
    states = played.log.run.steps
    for step in script.graph.steps:
        first = next((ready for ready in played.ready if ready.step.id == step.id), None)
        if first is not None and step.needs:
            assert first.ready_at == max(states[need].over_at for need in step.needs)
