"""What may go wrong around the control, minute after minute: it neither forgets, nor trembles, nor stands still."""

from itertools import pairwise

import pytest

from schemas.fleet import ScalingDecision
from services.autoscaler.domain.control import Control, Plan, Scaled
from services.autoscaler.domain.hosts import Host, Room
from services.autoscaler.domain.layout import Placed
from services.autoscaler.domain.observation import FleetSeen, Observation
from services.autoscaler.domain.rules import Rules
from tests.unit.autoscaler.graphs import call, graph
from tests.unit.autoscaler.observed import seen

COOLDOWN_S = 60
LLM = Scaled("llm", "llm", Rules(slots=4, ceiling=20, target_drain_s=10.0, cooldown_s=COOLDOWN_S, tier="zero"))
ROOM = Room(cpu=64, memory=64 << 30)


class Looks:
    """A control that looks every second, and what it came to each time."""

    def __init__(self, *names: str) -> None:
        self.control = Control(predicts=False)
        self.control.watch([LLM])
        self.plans: list[Plan] = []
        self.dead: dict[str, int] = {}
        """By name of a host, when it was heard last, in milliseconds."""
        self._names = names or ("a",)

    def at(self, llm: Observation, seconds: int = 1) -> Plan:
        """It is seen for so long."""
        for _ in range(seconds):
            now_s = len(self.plans)
            hosts = [Host(name, ROOM, self.dead.get(name, now_s * 1_000)) for name in self._names]
            self.plans.append(self.control.look({"llm": llm}, hosts, float(now_s)))
        return self.plans[-1]

    def replace(self) -> None:
        """Another leader takes over."""
        told = {
            label: ScalingDecision(
                instance="a", epoch=1, queue=label, replicas=it.replicas, because="", steady=it.steadied.told()
            )
            for label, it in self.plans[-1].decisions.items()
        }
        self.control = Control(predicts=False)
        self.control.watch([LLM])
        self.control.take_up(told)

    @property
    def replicas(self) -> list[int]:
        return [plan.decisions["llm"].replicas for plan in self.plans]

    @property
    def changes(self) -> list[int]:
        """The seconds in which the number was another one than before."""
        return [second for second, (before, after) in enumerate(pairwise(self.replicas), 1) if before != after]


BUSY, IDLE, UNREAD = seen(9.0, 9), seen(0.0, 0), seen(None, None)


def test_a_lag_that_cannot_be_read_for_a_minute_changes_nothing_and_is_named() -> None:
    looks = Looks()
    before = looks.at(BUSY, 90)
    during = looks.at(UNREAD, COOLDOWN_S)
    assert set(looks.replicas[90:]) == {3}
    assert during.layout == before.layout
    assert during.decisions["llm"].missing == ("the lag of standard", "the rate of standard")
    after = looks.at(BUSY, 30)
    assert (set(looks.replicas[90:]), after.decisions["llm"].missing) == ({3}, ())


def test_what_nobody_saw_is_not_taken_for_an_hour_of_nothing() -> None:
    looks = Looks()
    looks.at(BUSY, 90)
    looks.at(UNREAD, 3_600)
    looks.at(IDLE, COOLDOWN_S - 1)
    assert looks.replicas[-1] == 3, "no window has passed since the load was seen"
    looks.at(IDLE, 2)
    assert looks.replicas[-1] == 0


def test_an_hour_of_nothing_ends_at_zero_and_one_request_brings_one_worker() -> None:
    looks = Looks()
    looks.at(BUSY, 90)
    nothing = looks.at(IDLE, 3_600)
    assert nothing.layout.total("llm") == (0, 0)
    assert len(looks.changes) == 1, "down in one step"
    looks.control.open_runs.start("r", graph(call("answer", "llm")), 1e12)
    one = looks.at(seen(0.0, 1, service_s=None))
    assert one.layout.hosts == {"a": {"llm": Placed(1)}}
    assert looks.at(seen(1 / 60, 1, fleet=FleetSeen(warm=1, busy=1)), 30).layout == one.layout


@pytest.mark.parametrize("period_s", [2, 10, 30, 59])
def test_a_load_that_flaps_within_the_window_changes_nothing(period_s: int) -> None:
    looks = Looks()
    for _ in range(1_200 // period_s):
        looks.at(BUSY, period_s // 2)
        looks.at(IDLE, period_s - period_s // 2)
    assert set(looks.replicas) == {3}


@pytest.mark.parametrize("period_s", [61, 90, 120, 200])
def test_a_load_that_flaps_more_slowly_changes_workers_once_a_window(period_s: int) -> None:
    """At most: an increase after a decrease that was right is another load, and is granted at once."""
    looks = Looks()
    for _ in range(1_200 // period_s):
        looks.at(BUSY, period_s // 2)
        looks.at(IDLE, period_s - period_s // 2)
    assert set(looks.replicas) <= {0, 3}
    lowered = [second for second in looks.changes if looks.replicas[second] == 0]
    assert all(after - before >= COOLDOWN_S for before, after in pairwise(lowered))


@pytest.mark.parametrize("period_s", [7, 61, 90, 200])
def test_leaders_that_follow_each_other_decide_as_one_would(period_s: int) -> None:
    one, many = Looks(), Looks()
    for looks in (one, many):
        for second in range(900):
            looks.at(BUSY if second % period_s < period_s / 2 else IDLE)
            if looks is many and second % 17 == 0:
                looks.replace()
    assert many.replicas == one.replicas


def test_two_that_see_the_same_decide_the_same() -> None:
    one, other = Looks("a", "b"), Looks("b", "a")
    for looks in (one, other):
        looks.at(BUSY, 30)
        looks.at(UNREAD, 10)
        looks.at(seen(20.0, 200), 30)
    assert one.plans == other.plans


def test_what_a_host_was_starting_when_it_died_is_started_elsewhere() -> None:
    looks = Looks("a", "b")
    starting = seen(0.5, 1, fleet=FleetSeen(starting=1))
    (host,) = (name for name, placed in looks.at(starting, 5).layout.hosts.items() if placed)
    looks.dead[host] = 5_000
    assert looks.at(starting, 9).layout.at(host, "llm") == Placed(1), "it may be heard again"
    (other,) = {"a", "b"} - {host}
    assert looks.at(starting, 5).layout.hosts == {other: {"llm": Placed(1)}}
