"""A graph tells what its run will call; branches are learned; repeats, and ends nobody saw, do no harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.autoscaler.domain.branches import Branches
from services.autoscaler.domain.open_runs import GRACE_MS, Need, OpenRuns
from tests.unit.autoscaler.graphs import call, gate, graph

BRANCHING = graph(call("embed", "embedding"), gate("safe"), call("code", "code", when="${input.code}"))
DEADLINE_MS = 30_000


def opened(*runs: str) -> OpenRuns:
    open_runs = OpenRuns(Branches())
    for run_id in runs:
        open_runs.start(run_id, BRANCHING, DEADLINE_MS)
    return open_runs


def learned(*taken: bool) -> OpenRuns:
    """Runs that have taken the branch to the code, or have not, are over."""
    open_runs = opened()
    for number, took in enumerate(taken):
        open_runs.start(str(number), BRANCHING, DEADLINE_MS)
        open_runs.decide(str(number), "embed", taken=True)
        open_runs.decide(str(number), "code", taken=took)
        open_runs.end(str(number), teaches=True)
    return open_runs


def test_every_class_of_the_graph_is_needed_as_soon_as_the_run_has_started() -> None:
    assert opened("r").needs() == {"embedding": Need(1.0, 1.0), "code": Need(0.75, 0.75)}


def test_several_runs_need_a_class_more_likely() -> None:
    assert opened("1", "2", "3").needs()["code"] == Need(1 - 0.25**3, 2.25)


def test_steps_of_one_class_count_together() -> None:
    open_runs = OpenRuns(Branches())
    twice = graph(call("first", "llm", when="${a}"), call("second", "llm", when="${b}"))
    open_runs.start("r", twice, DEADLINE_MS)
    assert open_runs.needs() == {"llm": Need(1 - 0.25**2, 1.5)}


def test_a_step_that_is_over_is_needed_no_more() -> None:
    open_runs = opened("r")
    open_runs.decide("r", "embed", taken=True)
    assert set(open_runs.needs()) == {"code"}
    open_runs.decide("r", "code", taken=False)
    assert not open_runs.needs()


def test_a_branch_is_as_likely_as_it_was_taken() -> None:
    open_runs = learned(*[False, False, False, True] * 100)
    open_runs.start("next", BRANCHING, DEADLINE_MS)
    assert open_runs.needs()["code"].probability == pytest.approx(0.25, abs=0.03)
    assert open_runs.needs()["embedding"].probability == pytest.approx(1.0)


def test_what_changed_is_learned_anew() -> None:
    open_runs = learned(*[False] * 500, *[True] * 1_500)
    open_runs.start("next", BRANCHING, DEADLINE_MS)
    assert open_runs.needs()["code"].probability > 0.9


def test_a_step_that_a_finished_run_has_not_reached_was_not_taken() -> None:
    open_runs = opened("blocked", "next")
    open_runs.end("blocked", teaches=True)
    assert open_runs.needs()["code"].probability == pytest.approx(1.5 / 3)


def test_a_cancelled_run_teaches_nothing() -> None:
    open_runs = opened("cancelled", "next")
    open_runs.end("cancelled", teaches=False)
    assert open_runs.needs()["code"].probability == 0.75


def test_a_run_whose_end_was_not_seen_is_forgotten_after_its_deadline() -> None:
    open_runs = opened("lost")
    open_runs.forget_overdue(DEADLINE_MS + GRACE_MS)
    assert open_runs.needs()
    open_runs.forget_overdue(DEADLINE_MS + GRACE_MS + 1)
    assert not open_runs.needs()


facts = st.lists(
    st.tuples(st.sampled_from(["start", "taken", "skipped", "end"]), st.sampled_from("abc"), st.booleans()),
    max_size=40,
)


@given(facts)
def test_events_in_any_order_and_number_leave_only_what_open_runs_need(facts: list[tuple[str, str, bool]]) -> None:
    open_runs, undecided = opened(), dict[str, set[str]]()
    for what, run_id, code in facts:
        step = "code" if code else "embed"
        if what == "start":
            open_runs.start(run_id, BRANCHING, DEADLINE_MS)
            undecided.setdefault(run_id, {"code", "embed"})
        elif what == "end":
            open_runs.end(run_id, teaches=code)
            undecided.pop(run_id, None)
        else:
            open_runs.decide(run_id, step, taken=what == "taken")
            undecided.get(run_id, set()).discard(step)
    needed = {"code": "code", "embed": "embedding"}
    assert set(open_runs.needs()) == {needed[step] for steps in undecided.values() for step in steps}
    assert all(0 < need.probability <= 1 for need in open_runs.needs().values())
