"""The standby set is within its budget, and worth at least half of the best one."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.autoscaler.domain.tiers import Candidate, standby, worth


def candidate(
    label: str, usd_per_hour: float, per_hour: float = 1.0, saved_s: float = 10.0, critical: float = 1.0
) -> Candidate:
    return Candidate(label, per_hour, saved_s, critical, usd_per_hour)


def labels(candidates: list[Candidate], budget_usd_hour: float) -> list[str]:
    return [each.label for each in standby(candidates, budget_usd_hour)]


LLM = candidate("llm", 0.20, per_hour=10, saved_s=135)
EMBEDDING = candidate("embedding", 0.02, per_hour=10, saved_s=27)
CODE = candidate("code", 0.02, per_hour=2, saved_s=4)


def test_the_most_saved_for_a_dollar_comes_first() -> None:
    assert labels([CODE, LLM, EMBEDDING], 1.0) == ["embedding", "llm", "code"]


@pytest.mark.parametrize(
    ("budget_usd_hour", "chosen"),
    [(0.0, []), (0.019, []), (0.02, ["embedding"]), (0.21, ["llm"]), (0.22, ["embedding", "llm"])],
)
def test_the_budget_bounds_it(budget_usd_hour: float, chosen: list[str]) -> None:
    assert labels([CODE, LLM, EMBEDDING], budget_usd_hour) == chosen


def test_what_no_run_waits_for_is_not_kept_however_much_money_there_is() -> None:
    unused, parallel = candidate("unused", 0.1, per_hour=0), candidate("parallel", 0.1, critical=0.0)
    assert labels([unused, parallel, candidate("free-but-slow-to-wake", 0.0, saved_s=0)], 9.0) == []


def test_what_costs_nothing_is_kept_first() -> None:
    assert labels([EMBEDDING, candidate("free", 0.0)], 0.02) == ["free", "embedding"]


def test_of_equals_the_name_decides_whoever_leads() -> None:
    same = [candidate(label, 0.1) for label in "cab"]
    assert labels(same, 0.2) == labels(same[::-1], 0.2) == ["a", "b"]


candidates = st.lists(
    st.builds(
        Candidate,
        st.uuids().map(str),
        st.integers(0, 20).map(float),
        st.integers(0, 150).map(float),
        st.integers(0, 4).map(lambda quarters: quarters / 4),
        st.integers(1, 50).map(float),
    ),
    max_size=7,
)


@given(candidates, st.integers(0, 120).map(float))
def test_it_is_within_the_budget_and_at_least_half_of_the_best(found: list[Candidate], budget: float) -> None:
    chosen = standby(found, budget)
    assert sum(each.usd_per_hour for each in chosen) <= budget
    every_set = chain.from_iterable(combinations(found, size) for size in range(len(found) + 1))
    affordable = [some for some in every_set if sum(each.usd_per_hour for each in some) <= budget]
    assert worth(chosen) >= max(worth(some) for some in affordable) / 2
