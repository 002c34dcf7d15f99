"""When which fault is made."""

from collections import Counter
from itertools import pairwise

from loadtest.chaos.kinds import HEAVY, KINDS
from loadtest.chaos.schedule import schedule

WEIGHTS = {name: kind.weight for name, kind in KINDS.items()}


def test_the_same_seed_is_the_same_schedule_and_another_seed_is_not() -> None:
    assert schedule(100, 7, 60, WEIGHTS, HEAVY) == schedule(100, 7, 60, WEIGHTS, HEAVY)
    assert schedule(100, 7, 60, WEIGHTS, HEAVY) != schedule(100, 8, 60, WEIGHTS, HEAVY)


def test_it_has_as_many_faults_as_asked_for_in_order_and_in_time() -> None:
    for faults in (0, 1, 12, 33, 34, 300):
        plan = schedule(faults, 7, 60, WEIGHTS, HEAVY)
        assert len(plan) == faults
        assert [one.at_s for one in plan] == sorted(one.at_s for one in plan)
        assert all(0 <= one.at_s < 60 for one in plan)


def test_every_kind_is_made_when_there_is_room() -> None:
    assert {one.kind for one in schedule(len(KINDS), 7, 60, WEIGHTS, HEAVY)} == set(KINDS)
    assert len(KINDS) >= 12


def test_kinds_are_in_proportion() -> None:
    counts = Counter(one.kind for one in schedule(3_000, 7, 60, {"often": 9, "seldom": 1}))
    assert 2_600 < counts["often"] < 2_800


def test_heavy_faults_are_far_from_each_other() -> None:
    plan = schedule(300, 7, 300, WEIGHTS, HEAVY)
    at = [one.at_s for one in plan if one.kind in HEAVY]
    assert len(at) >= 6
    assert min(later - earlier for earlier, later in pairwise(at)) > 300 / len(at) / 2
