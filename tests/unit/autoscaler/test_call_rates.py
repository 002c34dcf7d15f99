"""What starts tells how often each class will be called, whatever waits on its way."""

import random

import pytest

from services.autoscaler.domain.branches import Branches
from services.autoscaler.domain.call_rates import CallRates
from tests.unit.autoscaler.graphs import call, gate, graph

ASK = graph(
    call("embed", "embedding"), gate("safe"), call("code", "code", when="${input.code}"), call("again", "code")
)
FIND = graph(call("embed", "embedding"), pipeline="find")


def started(asked_per_s: int, found_per_s: int, seconds: int = 10) -> CallRates:
    rates = CallRates(Branches())
    rates.start(ASK)
    rates.start(FIND)
    for second in range(seconds + 1):
        rates.look(second * 1_000)
        for pipeline, per_s in ((ASK, asked_per_s), (FIND, found_per_s)):
            for _ in range(per_s):
                rates.start(pipeline)
    return rates


def test_a_class_is_called_as_often_as_the_runs_of_all_pipelines_take_its_steps() -> None:
    assert started(4, 3).per_s() == pytest.approx({"embedding": 7.0, "code": 7.0})


def test_one_pipelines_burst_is_not_anothers() -> None:
    assert started(4, 40).per_s()["code"] == pytest.approx(7.0)


def test_what_has_just_been_seen_for_the_first_time_has_no_rate_yet() -> None:
    assert started(4, 3, seconds=0).per_s() == {"embedding": 0.0, "code": 0.0}


def test_a_share_is_no_more_a_matter_of_chance_the_more_runs_start() -> None:
    dice, branches = random.Random(5), Branches()
    rates = CallRates(branches)
    told = []
    for second in range(180):
        rates.look(second * 1_000)
        for _ in range(200):
            rates.start(ASK)
            branches.learn("ask", "code", taken=dice.random() < 0.25)
            branches.learn("ask", "again", taken=False)
        told.append(rates.per_s().get("code", 0.0))
    assert all(47.5 < rate < 52.5 for rate in told[90:]), "a twentieth off; by the last 500 runs it would be a sixth"
