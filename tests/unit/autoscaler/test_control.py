"""From what is seen to what hosts are told, look after look."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from schemas.base import Priority
from schemas.models import Resources
from schemas.tasks import Price
from services.autoscaler.domain.arrivals import Arrivals
from services.autoscaler.domain.control import Control, Plan, Scaled
from services.autoscaler.domain.false_warms import Tally
from services.autoscaler.domain.hosts import Host, Room
from services.autoscaler.domain.layout import Placed
from services.autoscaler.domain.observation import FleetSeen, LaneSeen, Observation
from services.autoscaler.domain.rates import arrivals_per_s
from services.autoscaler.domain.rules import Rules
from services.autoscaler.domain.schedules import Schedule
from services.autoscaler.domain.season import DAY_SLOTS, SLOT_S
from tests.unit.autoscaler.graphs import call, graph
from tests.unit.autoscaler.observed import seen

RULES = Rules(slots=4, ceiling=20, target_drain_s=10.0, cooldown_s=60.0, tier="zero")
EMBEDDING, LLM = Scaled("embedding", "embedding", RULES), Scaled("llm", "llm", RULES)
ASK = graph(call("embed", "embedding"), call("answer", "llm"))
ROOM = Room(cpu=64, memory=64 << 30)


def hosts(now_s: float, **running: int) -> list[Host]:
    return [Host("a", ROOM, round(now_s * 1_000), running=running)]


def watching(*queues: Scaled, predicts: bool = False) -> Control:
    control = Control(predicts=predicts)
    control.watch(queues)
    return control


def look(control: Control, now_s: float, running: Sequence[Host] | None = None, **queues: Observation) -> Plan:
    return control.look(queues, hosts(now_s) if running is None else running, now_s)


def replicas(plan: Plan) -> dict[str, int]:
    return {label: decision.replicas for label, decision in plan.decisions.items()}


def test_a_run_that_starts_places_every_class_it_will_call() -> None:
    control = watching(EMBEDDING, LLM)
    control.open_runs.start("r", ASK, 60_000)
    plan = look(control, 1.0, embedding=seen(), llm=seen())
    assert plan.layout.hosts == {"a": {"embedding": Placed(1), "llm": Placed(1)}}
    control.open_runs.end("r", teaches=False)
    assert replicas(look(control, 2.0, embedding=seen(), llm=seen())) == {"embedding": 0, "llm": 0}


def test_nothing_stays_warm_for_a_run_whose_end_nobody_saw() -> None:
    control = watching(LLM)
    control.open_runs.start("lost", graph(call("answer", "llm")), 60_000)
    assert replicas(look(control, 1.0, llm=seen())) == {"llm": 1}
    assert replicas(look(control, 200.0, llm=seen())) == {"llm": 0}


def test_a_queue_that_was_never_seen_keeps_what_runs() -> None:
    control = watching(EMBEDDING, LLM)
    plan = look(control, 1.0, hosts(1.0, llm=3), embedding=seen())
    assert "llm" not in plan.decisions
    assert plan.layout.at("a", "llm") == Placed(3)


def test_a_worker_that_is_gone_is_remembered_for_the_time_a_task_took() -> None:
    control = watching(LLM)
    look(control, 1.0, llm=seen(1.0, 0, service_s=3.0))
    later = look(control, 2.0, llm=seen(4.0, 0, service_s=None))
    assert later.decisions["llm"].terms.arriving == 12.0


def test_a_backlog_is_drained_in_the_time_after_a_start_though_no_worker_is_there_to_tell_it() -> None:
    control = watching(LLM)
    look(control, 1.0, llm=seen(0.0, 0)._replace(start_s=90.0))
    assert look(control, 2.0, llm=seen(0.0, 100)).decisions["llm"].terms.draining == 1.0


def test_a_service_time_is_believed_little_by_little() -> None:
    control = watching(LLM)
    look(control, 0.0, llm=seen(1.0, service_s=1.0))
    assert look(control, 1.0, llm=seen(1.0, service_s=2.0)).decisions["llm"].terms.arriving == 1.02
    for second in range(2, 300):
        plan = look(control, float(second), llm=seen(1.0, service_s=2.0))
    assert plan.decisions["llm"].terms.arriving > 1.99


def test_an_engine_that_never_gets_ready_does_not_bring_ever_more_workers() -> None:
    control, found = watching(LLM), set()
    for second in range(3_600):
        starting = seen(0.0, 5, fleet=FleetSeen(starting=1), service_s=None if second < 5 else 1.0)
        found.add(replicas(look(control, float(second), llm=starting)).get("llm"))
    assert found == {1}


def test_a_topic_made_anew_holds_until_its_rate_is_known() -> None:
    control, arrivals = watching(LLM), Arrivals()

    def at(second: int, end: int) -> Plan:
        arrivals.observe(end, second * 1_000)
        lane = LaneSeen(arrivals_per_s([arrivals]), 0)
        return look(control, float(second), llm=Observation({Priority.STANDARD: lane}, 1.0, FleetSeen()))

    for second in range(60):
        before = at(second, 1_000 + 9 * second)
    assert replicas(before) == {"llm": 3}
    anew = at(60, 4)
    assert replicas(anew) == {"llm": 3}
    assert anew.decisions["llm"].missing == ("the rate of standard",)
    for second in range(61, 66):
        known = at(second, 4 + 9 * (second - 60))
    assert replicas(known) == {"llm": 3}
    assert not known.decisions["llm"].missing


def test_what_two_backends_share_is_not_told_by_graphs() -> None:
    burst = Scaled("llm.burst", "llm", RULES)
    for queues, sustained in (((LLM,), 10.0), ((LLM, burst), 6.0)):
        control = watching(*queues)
        for second in range(12):
            for number in range(10):
                control.open_runs.start(f"{second}-{number}", graph(call("answer", "llm")), 60_000)
            now_s = float(second)
            plan = control.look({"llm": seen(6.0), "llm.burst": seen()}, hosts(now_s), now_s)
        assert round(plan.decisions["llm"].terms.sustained) == sustained


@pytest.mark.parametrize(
    ("backend", "started"), [(None, "llm"), ("local", "llm"), ("burst", "llm.burst"), ("gone", None)]
)
def test_a_run_that_starts_places_the_backend_that_a_step_names(backend: str | None, started: str | None) -> None:
    control = watching(LLM._replace(backend="local"), LLM._replace(label="llm.burst", backend="burst"))
    control.open_runs.start("r", graph(call("answer", "llm", backend=backend)), 60_000)
    plan = control.look({"llm": seen(), "llm.burst": seen()}, hosts(1.0), 1.0)
    assert plan.layout.hosts == {"a": {started: Placed(1)} if started else {}}
    control.open_runs.decide("r", "answer", taken=True)
    control.look({"llm": seen(), "llm.burst": seen()}, hosts(2.0), 2.0)
    assert sum(tally.in_vain for tally in control.false_warms.tallies.values()) == 0


OWN = LLM._replace(backend="local", price=Price(replica_hour_usd=0.72))
HOSTED = LLM._replace(label="llm.burst", backend="burst", price=Price(call_usd=0.001))
WORKS = seen(fleet=FleetSeen(warm=1))


def look_at_both(control: Control, now_s: float, own: Observation, hosted: Observation) -> dict[str, int]:
    return replicas(control.look({"llm": own, "llm.burst": hosted}, hosts(now_s), now_s))


def test_no_run_starts_a_worker_of_ones_own_while_hosted_ones_cost_less() -> None:
    control = watching(OWN, HOSTED)
    control.open_runs.start("r", graph(call("answer", "llm")), 60_000)
    assert look_at_both(control, 1.0, seen(), WORKS) == {"llm": 0, "llm.burst": 1}
    assert look_at_both(control, 2.0, seen(), WORKS._replace(fleet=None))["llm"] == 0


def test_runs_that_cost_more_on_hosted_workers_start_one_of_ones_own() -> None:
    control = watching(OWN, HOSTED)
    for second in range(8):
        control.open_runs.start(str(second), graph(call("answer", "llm")), 60_000)
        decided = look_at_both(control, float(second), seen(), WORKS)
    assert decided == {"llm": 1, "llm.burst": 1}, "3.60 dollars an hour are more than 0.72"


def test_a_call_that_cannot_wait_for_a_load_starts_hosted_workers() -> None:
    control = watching(OWN, HOSTED)
    look_at_both(control, 1.0, seen()._replace(start_s=20.0), seen())
    hasty = call("answer", "llm").model_copy(update={"timeout_ms": 10_000})
    control.open_runs.start("r", graph(hasty), 60_000)
    assert look_at_both(control, 2.0, seen(), seen()) == {"llm": 0, "llm.burst": 1}


def test_a_start_ahead_is_in_vain_where_another_backend_was_called() -> None:
    control = watching(OWN, HOSTED)
    control.open_runs.start("r", graph(call("answer", "llm")), 60_000)
    look_at_both(control, 1.0, seen(), seen())
    control.open_runs.decide("r", "answer", taken=True, backend="burst")
    look_at_both(control, 2.0, seen(), seen())
    assert control.false_warms.tallies == {"llm": Tally(1, 1)}


def test_a_schedule_is_a_floor() -> None:
    noon_s = datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp()
    office = Schedule("0 8 * * *", "UTC", 10 * 3_600.0, 4)
    control = watching(LLM._replace(schedules=(office,)))
    assert replicas(look(control, noon_s, llm=seen())) == {"llm": 4}
    assert replicas(look(control, noon_s + 8 * 3_600, llm=seen())) == {"llm": 0}


def test_what_is_seen_day_after_day_is_expected() -> None:
    control = watching(LLM, predicts=True)
    for slot in range(2 * DAY_SLOTS + 54):
        rate = 9.0 if 54 <= slot % DAY_SLOTS < 60 else 1.0
        look(control, float(slot * SLOT_S), llm=seen(rate)._replace(start_s=100.0))
    at_nine = look(control, 2 * 86_400.0 + 9 * 3_600.0 - 350.0, llm=seen(1.0)._replace(start_s=100.0))
    assert replicas(at_nine) == {"llm": 3}


def test_starts_in_vain_are_counted() -> None:
    control = watching(EMBEDDING, LLM)
    control.open_runs.start("r", ASK, 60_000)
    look(control, 1.0, embedding=seen(), llm=seen())
    control.open_runs.decide("r", "embed", taken=True)
    control.open_runs.decide("r", "answer", taken=False)
    look(control, 2.0, embedding=seen(), llm=seen())
    tallies = control.false_warms.tallies
    assert {label: tally.in_vain for label, tally in tallies.items()} == {"embedding": 0, "llm": 1}


def test_a_host_that_was_silent_for_a_while_goes_on_with_what_runs_there() -> None:
    control = watching(LLM._replace(resources=Resources(cpu=1.0)))
    full = Host("a", Room(cpu=1.0, memory=1 << 30), 0, running={"llm": 1}, ready={"llm": 1})

    def plan(now_s: float, *heard: Host) -> Plan:
        return look(control, now_s, heard, llm=seen(1.0, 0, fleet=FleetSeen(warm=1)))

    assert plan(1.0, full._replace(heard_ms=1_000)).layout.at("a", "llm") == Placed(1)
    assert plan(20.0).layout.hosts == {}
    back = plan(21.0, full._replace(heard_ms=21_000)).layout
    assert (back.at("a", "llm"), back.unplaced) == (Placed(1), ())


def test_another_configuration_keeps_what_is_known() -> None:
    control = watching(LLM)
    look(control, 1.0, llm=seen(9.0))
    control.watch([LLM._replace(rules=RULES._replace(ceiling=2)), EMBEDDING])
    plan = look(control, 2.0, llm=seen(None), embedding=seen())
    assert replicas(plan) == {"llm": 2, "embedding": 0}
