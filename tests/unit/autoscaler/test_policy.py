"""The formula, term by term; nothing lost on the way to zero and back; what is not known changes nothing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.models import ModelClass, queues
from services.autoscaler.domain.demand import analyze
from services.autoscaler.domain.explanation import explain
from services.autoscaler.domain.observation import FleetSeen, Observation
from services.autoscaler.domain.policy import Decision, decide
from services.autoscaler.domain.rules import Floor, Rules, Tier
from tests.unit.autoscaler.observed import seen

RULES = Rules(slots=4, ceiling=20, target_drain_s=10.0, cooldown_s=60.0, tier="zero")


def decided(
    observation: Observation, *floors: Floor, rules: Rules = RULES, last: Decision | None = None, now_s: float = 0.0
) -> Decision:
    decision = decide(rules, analyze(observation), floors, last, now_s)
    assert decision is not None
    return decision


def because(decision: Decision) -> str:
    return next(line.how for line in explain(decision) if line.term == "replicas")


@pytest.mark.parametrize(
    ("arrivals_per_s", "outstanding", "service_s", "replicas"),
    [
        (0.0, 0, 2.0, 0),
        (0.01, 0, 0.1, 1),
        (0.0, 1, 0.1, 1),
        (3.0, 0, 1.0, 1),
        (3.1, 0, 1.0, 2),
        (6.0, 60, 1.0, 3),
        (6.0, 60, 3.0, 9),
        (6.0, 15, 3.0, 6),
        (1_000.0, 0, 1.0, 20),
    ],
    ids=[
        "no load",
        "any load",
        "one task",
        "exactly one",
        "a little more",
        "with a lag",
        "of long tasks",
        "a lag for which the headroom is enough",
        "capped",
    ],
)
def test_the_formula(arrivals_per_s: float, outstanding: int, service_s: float, replicas: int) -> None:
    assert decided(seen(arrivals_per_s, outstanding, service_s)).replicas == replicas


@given(st.floats(0, 500), st.integers(0, 10_000), st.floats(0.001, 30), st.integers(1, 64), st.floats(1, 60))
def test_the_decision_covers_what_arrives_and_drains_in_time(
    rate: float, outstanding: int, service_s: float, slots: int, drain_s: float
) -> None:
    rules = Rules(slots, ceiling=10**9, target_drain_s=drain_s, cooldown_s=60.0, tier="zero")
    replicas = decided(seen(rate, outstanding, service_s), rules=rules).replicas
    asked = max(rate * service_s / 0.75, rate * service_s + outstanding * service_s / drain_s)
    assert replicas * slots >= asked * (1 - 1e-9) - 1e-6
    assert (replicas - 1) * slots < asked or replicas == 0


def test_what_workers_have_begun_does_not_wait() -> None:
    busy = seen(6.0, 60, 3.0, fleet=FleetSeen(warm=5, busy=20))
    assert decided(busy).terms.draining == pytest.approx((60 - 20) * 3.0 / 10.0)


def test_a_backlog_is_drained_in_the_time_after_a_start() -> None:
    assert decided(seen(6.0, 60, 3.0)._replace(start_s=50.0)).terms.draining == pytest.approx(180 / 60)


def test_headroom_is_for_what_runs_bring_not_for_a_wave_of_it() -> None:
    wave = seen(8.0, 0, 1.0)._replace(coming_per_s=6.0)
    assert decided(wave).replicas == 2, "6/0.75 slots, and so 8 are enough"
    assert decided(seen(8.0, 0, 1.0)).replicas == 3


def test_of_a_wave_counts_what_the_headroom_takes_and_what_waits_of_the_rest() -> None:
    wave = seen(11.0, 0, 1.0)._replace(coming_per_s=6.0)
    assert decided(wave).replicas == 2, "6/0.75 slots, as without it"
    behind = seen(11.0, 20, 1.0)._replace(coming_per_s=6.0)
    assert decided(behind).terms.needed == pytest.approx((8.0 + 20 / 10.0) / 4)


def test_work_on_its_way_is_sized_for_before_it_comes() -> None:
    assert decided(seen(0.0)._replace(coming_per_s=6.0)).replicas == 2


def test_what_no_wave_explains_counts_as_it_arrives() -> None:
    assert decided(seen(13.0, 0, 1.0)._replace(coming_per_s=6.0)).replicas == 5


def test_a_tenth_more_than_workers_are_sized_for_starts_none() -> None:
    last = decided(seen(6.0))
    assert decided(seen(6.6), last=last, now_s=1.0).replicas == 2
    assert decided(seen(6.7), last=last, now_s=1.0).replicas == 3


def test_just_after_some_were_taken_away_a_little_more_brings_none_back() -> None:
    last = decided(seen(12.0))
    for now_s in range(1, 61):
        last = decided(seen(6.0), last=last, now_s=float(now_s))
    assert last.replicas == 2
    assert decided(seen(7.8), last=last, now_s=70.0).replicas == 2
    assert decided(seen(7.9), last=last, now_s=70.0).replicas == 3
    assert decided(seen(6.7), last=last, now_s=120.0).replicas == 3


def test_workers_that_start_are_among_those_decided_on() -> None:
    first = decided(seen(9.0))
    again = decided(seen(9.0, fleet=FleetSeen(warm=1, starting=2)), last=first, now_s=1.0)
    assert (first.replicas, again.replicas) == (3, 3)


def test_it_is_never_below_what_is_in_flight() -> None:
    busy = seen(0.0, 0, 0.001, fleet=FleetSeen(warm=3, busy=9))
    last = decided(busy)
    for now_s in range(10, 400, 10):
        last = decided(busy, last=last, now_s=float(now_s))
        assert last.replicas == 3


def test_no_load_for_a_window_ends_at_zero_and_one_task_brings_a_worker_back() -> None:
    last = decided(seen(1.0, 1))
    for now_s in range(1, 61):
        last = decided(seen(0.0, 0), last=last, now_s=float(now_s))
    assert last.replicas == 0
    for now_s in range(61, 3_600):
        last = decided(seen(0.0, 0, service_s=None), last=last, now_s=float(now_s))
    assert decided(seen(0.0, 1, service_s=None), last=last, now_s=3_600.0).replicas == 1


def test_a_new_leader_leaves_what_runs_for_a_window() -> None:
    first = decided(seen(1.0, fleet=FleetSeen(warm=5, starting=1)))
    assert first.replicas == 6
    assert decided(seen(1.0), last=first, now_s=59.0).replicas == 6
    assert decided(seen(1.0), last=first, now_s=60.0).replicas == 1


def test_a_new_leader_that_cannot_see_decides_nothing() -> None:
    assert decide(RULES, analyze(seen(outstanding=None, fleet=None)), (), None, 0.0) is None
    kept = decided(seen(outstanding=None, fleet=FleetSeen(warm=2, starting=1)))
    assert kept.replicas == 3


def test_what_the_load_is_need_not_be_known_for_a_floor() -> None:
    assert decided(seen(outstanding=None), Floor(1, "pre-warm")).replicas == 1


@pytest.mark.parametrize(
    "unseen",
    [seen(outstanding=None), seen(outstanding=-1), seen(arrivals_per_s=None), seen(fleet=None)],
    ids=["no lag", "offset -1", "no rate", "no fleet"],
)
def test_what_cannot_be_read_holds_the_last_decision_and_says_so(unseen: Observation) -> None:
    last = decided(seen(9.0))
    for now_s in range(1, 120):
        held = decided(unseen, last=last, now_s=float(now_s))
        assert held.replicas == 3
        assert "cannot be read" in because(held)
        last = held
    assert decided(seen(0.0), last=last, now_s=120.0).replicas == 3, "no window passed unseen"


def test_a_held_decision_still_gives_a_worker_to_what_waits() -> None:
    idle = decided(seen())
    waiting = seen(outstanding=4, fleet=None)
    assert decided(waiting, last=idle, now_s=1.0).replicas == 1
    assert decided(waiting).replicas == 1, "and so does the first one"


def test_floors_raise_and_the_ceiling_caps() -> None:
    assert decided(seen(), Floor(5, "schedule"), Floor(2, "prediction")).replicas == 5
    assert decided(seen(), Floor(50, "schedule")).replicas == 20
    assert decided(seen(outstanding=None), Floor(5, "schedule"), last=decided(seen())).replicas == 5


def test_a_floor_that_is_gone_leaves_at_once_what_the_load_does_not_want() -> None:
    raised = decided(seen(), Floor(3, "pre-warm"))
    assert decided(seen(), last=raised, now_s=1.0).replicas == 0


@pytest.mark.parametrize(("tier", "warm", "asleep"), [("always", 2, 0), ("standby", 0, 2), ("zero", 0, 0)], ids=str)
def test_the_tier_says_what_is_kept_without_load(tier: Tier, warm: int, asleep: int) -> None:
    decision = decided(seen(), rules=RULES._replace(tier=tier, least=2))
    assert (decision.replicas, decision.asleep) == (warm, asleep)


def test_a_worker_woken_is_no_longer_asleep() -> None:
    rules = RULES._replace(tier="standby", least=2)
    assert decided(seen(0.1), rules=rules).asleep == 1
    assert decided(seen(30.0), rules=rules).asleep == 0


def test_while_the_group_is_not_stable_nothing_is_taken_away() -> None:
    last = decided(seen(9.0))
    for now_s in (61.0, 122.0):
        last = decided(seen(0.0, fleet=FleetSeen(warm=3, is_stable=False)), last=last, now_s=now_s)
        assert last.replicas == 3
    assert decided(seen(0.0, fleet=FleetSeen(warm=3)), last=last, now_s=200.0).replicas == 0


@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(0, 100), st.none() | st.integers(-1, 1_000), st.integers(0, 40), st.integers(0, 9)
        ),
        max_size=60,
    )
)
def test_every_decision_is_between_floor_and_ceiling_and_holds_what_is_in_flight(
    looks: list[tuple[float | None, int | None, int, int]],
) -> None:
    last: Decision | None = None
    for second, (rate, outstanding, busy, floor) in enumerate(looks):
        analysis = analyze(seen(rate, outstanding, fleet=FleetSeen(warm=10, busy=busy)))
        last = decide(RULES, analysis, (Floor(floor, "test"),), last, float(second))
        if last is not None:
            assert floor <= last.replicas <= 20
            assert last.missing or last.replicas >= math.ceil(busy / 4)
            assert not (outstanding or 0) > 0 or last.replicas >= 1


def test_the_rules_are_the_queues_and_no_worker_is_without_a_partition() -> None:
    written = {
        "backends": [{"name": "local", "engine": {"kind": "simulated"}}],
        "slots": 8,
        "lanes": {"interactive": "0-2", "standard": "3-4", "batch": "5"},
        "scaling": {"tier": "standby", "min_replicas": 0, "max_replicas": 9, "target_drain": "2s", "cooldown": "5m"},
    }
    (queue,) = queues({"llm": ModelClass.model_validate(written)})
    assert Rules.of(queue) == Rules(8, ceiling=3, target_drain_s=2.0, cooldown_s=300.0, tier="standby", least=1)
    assert Rules.of(queue, "zero").tier == "zero"


def test_every_term_is_explained() -> None:
    decision = decided(seen(6.0, 60, 3.0), Floor(2, "schedule 0 8 * * 1-5"))
    assert [(line.term, line.value) for line in explain(decision)] == [
        ("sustained", "18.00 slots"),
        ("arriving", "18.00 slots"),
        ("draining", "18.00 slots"),
        ("lag", "no worker"),
        ("by load", "9"),
        ("in flight", "0"),
        ("steadied", "9"),
        ("floor", "0"),
        ("floor", "2"),
        ("ceiling", "20"),
        ("replicas", "9"),
        ("asleep", "0"),
    ]


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (decided(seen(9.0)), "the load"),
        (decided(seen(0.0), last=decided(seen(9.0)), now_s=1.0), "the stabilisation window"),
        (decided(seen(9.0), Floor(5, "schedule")), "schedule"),
        (decided(seen(900.0)), "the ceiling"),
        (decided(seen(0.0), rules=RULES._replace(tier="always")), "tier always"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_decided_is_named(decision: Decision, why: str) -> None:
    assert because(decision) == why
