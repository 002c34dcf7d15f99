"""How often a branch is taken: what is remembered of it, and for how long."""

import random

import pytest

from services.autoscaler.domain.branches import Branches
from services.autoscaler.domain.prewarm import START_AT
from tests.unit.autoscaler.graphs import call

STEP = call("code", "code", when="${input.code}")


def taught(branches: Branches, share: float, runs: int, seed: int = 1) -> Branches:
    dice = random.Random(seed)
    for _ in range(runs):
        branches.learn("ask", "code", taken=dice.random() < share)
    return branches


def test_a_condition_is_likely_to_hold_for_the_first_run_until_one_says_otherwise() -> None:
    branches = Branches()
    assert branches.share("ask", STEP) >= START_AT
    branches.learn("ask", "code", taken=False)
    assert branches.share("ask", STEP) < START_AT


def test_nothing_stops_a_step_without_a_condition() -> None:
    assert Branches().share("ask", call("embed", "embedding")) == 1.0


def test_the_first_runs_count_alike() -> None:
    branches = Branches()
    for number in range(400):
        branches.learn("ask", "code", taken=number < 100)
    assert branches.share("ask", STEP) == pytest.approx((100 + 2 * 0.75) / 402)


@pytest.mark.parametrize(("runs_per_s", "runs"), [(1.0, 2_000), (10.0, 12_000)], ids=["a few", "many"])
def test_another_habit_is_believed_after_a_few_times_what_is_remembered(runs_per_s: float, runs: int) -> None:
    branches = Branches()
    branches.pace("ask", runs_per_s)
    assert taught(branches, 0.25, runs).share("ask", STEP) == pytest.approx(0.25, abs=0.06)
    assert taught(branches, 0.75, runs).share("ask", STEP) == pytest.approx(0.75, abs=0.06)


def test_after_a_burst_the_many_runs_it_brought_weigh_no_more_than_others() -> None:
    branches = Branches()
    branches.pace("ask", 400.0)
    taught(branches, 0.25, 24_000)
    branches.pace("ask", 1.0)
    assert taught(branches, 0.75, 2_000).share("ask", STEP) == pytest.approx(0.75, abs=0.06)
