"""Demand is told in seconds of work; a measure that is missing is named, and never taken for 0."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Priority
from services.autoscaler.domain.demand import Demand, Missing, Work, analyze
from services.autoscaler.domain.observation import UNSEEN, FleetSeen, LaneSeen, Observation
from tests.unit.autoscaler.observed import seen

measures = st.none() | st.floats(0, 1e6)
counts = st.none() | st.integers(0, 10**9)


def demand(observation: Observation) -> Demand:
    analysis = analyze(observation)
    assert isinstance(analysis, Demand)
    return analysis


def missing(observation: Observation) -> Missing:
    analysis = analyze(observation)
    assert isinstance(analysis, Missing)
    return analysis


def test_tasks_count_by_the_time_they_take() -> None:
    lanes = {Priority.INTERACTIVE: LaneSeen(2.0, 10), Priority.BATCH: LaneSeen(0.5, 100)}
    found = demand(Observation(lanes, service_s=3.0, fleet=FleetSeen(warm=1)))
    assert found.lanes == {Priority.INTERACTIVE: Work(6.0, 30.0), Priority.BATCH: Work(1.5, 300.0)}
    assert found.total == Work(7.5, 330.0)


def test_lag_is_the_time_that_all_workers_take_the_starting_ones_counted() -> None:
    found = demand(seen(outstanding=60, service_s=2.0, fleet=FleetSeen(warm=1, starting=2, asleep=5, draining=1)))
    assert found.lag_s(slots=4) == pytest.approx(10.0)


def test_without_workers_lag_is_no_number_unless_there_is_none() -> None:
    assert demand(seen(outstanding=60)).lag_s(slots=4) is None
    assert demand(seen(outstanding=0)).lag_s(slots=4) == 0.0


@pytest.mark.parametrize("unreadable", [None, -1, math.nan])
def test_a_lag_that_cannot_be_read_is_missing(unreadable: int | None) -> None:
    assert missing(seen(outstanding=unreadable)).measures == ("the lag of standard",)


def test_every_missing_measure_is_named() -> None:
    found = missing(seen(arrivals_per_s=None, outstanding=None, service_s=None, fleet=None))
    assert found.measures == ("the lag of standard", "the rate of standard", "the fleet", "the service time")


def test_a_queue_without_work_needs_no_service_time() -> None:
    assert demand(seen(service_s=None)).total == Work(0.0, 0.0)


def test_work_of_a_class_that_never_ran_is_known_to_wait() -> None:
    assert missing(seen(outstanding=1, service_s=None)) == Missing(("the service time",), some_wait=True, there=0)


def test_a_queue_of_which_nothing_was_seen_is_not_one_without_work() -> None:
    assert missing(UNSEEN).measures == ("the lag", "the fleet", "the service time")


def test_tasks_in_one_lane_wait_though_another_cannot_be_read() -> None:
    lanes = {Priority.INTERACTIVE: LaneSeen(0.0, 2), Priority.BATCH: LaneSeen(0.0, None)}
    assert missing(Observation(lanes, 1.0, FleetSeen())) == Missing(("the lag of batch",), some_wait=True, there=0)


@given(measures, counts, measures, st.booleans())
def test_a_demand_is_told_only_of_what_was_seen(
    rate: float | None, outstanding: int | None, service_s: float | None, hears: bool
) -> None:
    analysis = analyze(seen(rate, outstanding, service_s, FleetSeen() if hears else None))
    known = None not in (rate, outstanding) and hears and (service_s is not None or not (rate or outstanding))
    assert isinstance(analysis, Demand) == known
    if isinstance(analysis, Missing):
        assert analysis.measures
        assert analysis.some_wait == bool(outstanding)
