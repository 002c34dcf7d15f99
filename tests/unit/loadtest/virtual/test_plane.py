"""The autoscaler's own code in virtual time, and everything that may go wrong around it."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from loadtest.virtual.model import Model
from loadtest.virtual.pipeline import Call, pipeline
from loadtest.virtual.plane import Plane
from services.autoscaler.domain.control import Control
from services.autoscaler.domain.policy import Decision
from services.autoscaler.domain.rules import Rules

FAST, SLOW = Model("embedding", 10.0, 0.1), Model("llm", 60.0, 1.0)
RULES = Rules(slots=4, ceiling=10, target_drain_s=30.0, cooldown_s=120.0, tier="zero")
ASK = pipeline("ask", [Call("embed", "embedding"), Call("answer", "llm", ("embed",))])
BRANCHES = pipeline(
    "branches",
    [Call("embed", "embedding"), Call("answer", "llm", ("embed",), 0.5), Call("end", "embedding", ("answer",))],
)


def made(control: Control | None = None, rules: Rules = RULES, machines: int = 3) -> Plane:
    """Everything at zero."""
    return Plane([FAST, SLOW], dict.fromkeys(("embedding", "llm"), rules), control or Control(), machines=machines)


def watched(plane: Plane, name: str = "llm") -> list[Decision]:
    """What is decided for a class, look by look."""
    decisions: list[Decision] = []
    plane.watch(lambda plan: decisions.append(plan.decisions[name]))
    return decisions


def steady(per_s: float) -> Callable[[float], float]:
    return lambda _: per_s


def test_cold_starts_of_a_pipeline_happen_all_at_once() -> None:
    ahead, one_by_one = made(), made(Control(prewarms=False))
    for plane in (ahead, one_by_one):
        plane.calendar.at(0.5, lambda plane=plane: plane.runs.start(ASK))  # type: ignore[misc]
        plane.calendar.run(200.0)
    assert ahead.runs.took_s[0] == pytest.approx(60.0, abs=5.0)
    assert one_by_one.runs.took_s[0] == pytest.approx(70.0, abs=5.0)


def test_an_hour_without_load_ends_at_zero_and_one_request_is_answered() -> None:
    plane = made()
    for at_s in (10.0, 3_700.0):
        plane.calendar.at(at_s, lambda: plane.runs.start(ASK))
    plane.calendar.run(3_690.0)
    assert not plane.pools["llm"].replicas
    plane.calendar.run(3_800.0)
    assert len(plane.runs.took_s) == 2
    assert plane.runs.open == 0


def test_every_run_ends_once_whatever_branches_it_takes() -> None:
    plane = made()
    plane.load(BRANCHES, steady(0.5), 0.5, 400.0)
    plane.calendar.run(800.0)
    assert plane.runs.open == 0
    assert plane.pools["embedding"].tally.tasks == 2 * len(plane.runs.took_s)
    assert 0.3 < plane.pools["llm"].tally.tasks / len(plane.runs.took_s) < 0.7


def test_a_lag_that_cannot_be_read_for_a_minute_changes_nothing() -> None:
    plane = made()
    decisions = watched(plane)
    plane.load(ASK, steady(6.0), 6.0, 700.0)
    plane.calendar.run(300.0)
    before, plane.is_blind = decisions[-1].replicas, True
    plane.calendar.run(360.0)
    assert {decision.replicas for decision in decisions[-59:]} == {before}
    assert decisions[-1].missing == ("the lag of standard", "the rate of standard")
    plane.is_blind = False
    plane.calendar.run(900.0)
    assert not decisions[-1].missing
    assert plane.runs.open == 0


def test_a_machine_that_dies_while_workers_start_on_it_is_replaced() -> None:
    plane = made(machines=2)
    plane.calendar.at(0.5, lambda: plane.runs.start(ASK))
    plane.calendar.run(30.0)
    (host,) = {replica.host for replica in plane.pools["llm"].replicas}
    plane.machines.fail(host, 30_000)
    plane.calendar.run(41.0)
    assert {replica.host for replica in plane.pools["llm"].replicas} == {"machine-0", "machine-1"} - {host}
    plane.calendar.run(110.0)
    assert plane.runs.open == 0


def test_machines_that_die_under_load_lose_nothing() -> None:
    plane = made()
    plane.load(ASK, steady(6.0), 6.0, 400.0)
    plane.calendar.run(250.0)
    plane.machines.fail("machine-0", 250_000)
    plane.calendar.run(700.0)
    assert plane.runs.open == 0
    assert all(replica.host != "machine-0" for pool in plane.pools.values() for replica in pool.replicas)


def test_another_leader_goes_on_with_what_runs() -> None:
    plane = made()
    plane.load(ASK, steady(6.0), 6.0, 1_000.0)
    plane.calendar.run(300.0)
    running = [replica for pool in plane.pools.values() for replica in pool.replicas]
    plane.lead(Control())
    plane.calendar.run(360.0)
    assert all(replica.state == "warm" for replica in running)


def test_of_two_that_see_the_same_both_decide_the_same() -> None:
    found = []
    for _ in range(2):
        plane = made()
        decisions = watched(plane)
        plane.load(ASK, steady(3.0), 3.0, 300.0)
        plane.calendar.run(300.0)
        found.append(decisions)
    assert found[0] == found[1]


@pytest.mark.parametrize("period_s", [20.0, 60.0, 110.0])
def test_a_load_that_flaps_changes_workers_at_most_once_a_window(period_s: float) -> None:
    plane = made(rules=RULES._replace(tier="always"))
    decisions = watched(plane)
    plane.load(ASK, lambda now_s: 8.0 if now_s % period_s < period_s / 2 else 0.5, 8.0, 1_500.0)
    plane.calendar.run(1_500.0)
    settled = [decision.steadied.replicas for decision in decisions[300:]]
    changed = [look for look, (before, after) in enumerate(pairwise(settled)) if before != after]
    assert all(after - before >= RULES.cooldown_s for before, after in pairwise(changed))


def test_ten_times_the_load_is_followed_by_each_class_and_left_again() -> None:
    plane = made(rules=RULES._replace(tier="always", ceiling=40))
    decisions = watched(plane)
    plane.load(ASK, lambda now_s: 20.0 if 300.0 <= now_s < 700.0 else 2.0, 20.0, 1_300.0)
    plane.calendar.run(1_300.0)
    base, peak = decisions[290].replicas, max(decision.replicas for decision in decisions)
    assert base == 1
    assert 7 <= peak <= 9, "20 calls of a second on 4 slots, three quarters busy: 6.7, and what chance adds"
    assert decisions[-1].replicas == base
    assert plane.runs.open <= 30
