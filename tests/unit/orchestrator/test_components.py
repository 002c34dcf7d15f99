"""Which partitions may be given a task, by what the workers' breakers say."""

from collections.abc import Mapping

import pytest

from schemas.fleet import BreakerState, CircuitState, WorkerStatus
from services.orchestrator.domain.components import REMEMBERED_MS, Components

CLOSED, OPEN, HALF_OPEN = CircuitState
LANE = [0, 1, 2, 3]
NOON = 1_700_000_000_000


class Fleet:
    """Workers of one component, each owning some partitions, and what dispatch makes of their breakers."""

    def __init__(self, **partitions: set[int]) -> None:
        self.partitions: Mapping[str, set[int]] = partitions
        self.components = Components()
        self.said: dict[str, tuple[int, BreakerState]] = {}

    def say(self, at: int = NOON, /, *, probes: int = 3, **states: CircuitState) -> "Fleet":
        return self.hear(states, at, probes)

    def hear(self, states: Mapping[str, CircuitState], at: int = NOON, probes: int = 3) -> "Fleet":
        for name, state in states.items():
            offered = probes if state is HALF_OPEN else 0
            self.said[name] = (
                at,
                BreakerState(instance=name, model_class="llm", backend="local", state=state, probes=offered),
            )
        return self.look(at)

    def look(self, now: int = NOON) -> "Fleet":
        workers = [
            WorkerStatus(
                instance=name, host="h", model_class="llm", backend="local", state="warm", slots=4, busy=0,
                committed=dict.fromkeys(owned, 0),
            )
            for name, owned in self.partitions.items()
        ]  # fmt: skip
        self.components.heard(self.said.values(), workers, now)
        return self

    def vanish(self, now: int) -> "Fleet":
        self.said.clear()
        return self.look(now)

    def ask(self, backend: str = "local") -> list[int]:
        return list(self.components.partitions("llm", backend, LANE))


def test_a_component_nobody_speaks_of_is_well() -> None:
    assert Fleet().ask() == LANE


def test_one_whose_breakers_are_closed_is_well() -> None:
    assert Fleet(a={0, 1}, b={2, 3}).say(a=CLOSED, b=CLOSED).ask() == LANE


def test_one_whose_only_worker_is_open_is_given_nothing() -> None:
    fleet = Fleet(a={0, 1, 2, 3}).say(a=OPEN)
    assert fleet.ask() == []
    assert fleet.ask("burst") == LANE, "the other backend is another component"


@pytest.mark.parametrize(
    ("states", "down"),
    [
        ({"a": OPEN, "b": CLOSED, "c": CLOSED}, False),
        ({"a": OPEN, "b": OPEN, "c": CLOSED}, True),
        ({"a": OPEN, "b": CLOSED}, False),
        ({"a": OPEN, "b": OPEN}, True),
    ],
)
def test_it_is_down_when_most_workers_ail(states: dict[str, CircuitState], down: bool) -> None:
    fleet = Fleet(a={0}, b={1}, c={2, 3}).hear(states)
    assert (fleet.ask() == []) == down


def test_a_bad_worker_among_good_ones_is_passed_by() -> None:
    assert Fleet(a={0, 3}, b={1}, c={2}).say(a=OPEN, b=CLOSED, c=CLOSED).ask() == [1, 2]


def test_a_lane_that_only_the_bad_worker_has_is_used_all_the_same() -> None:
    assert Fleet(a={0, 1, 2, 3}, b={7}).say(a=OPEN, b=CLOSED).ask() == LANE


def test_half_open_lets_pass_what_the_worker_would_try_and_no_more() -> None:
    fleet = Fleet(a={0, 1, 2, 3}).say(a=HALF_OPEN, probes=2)
    assert [fleet.ask() for _ in range(4)] == [LANE, LANE, [], []]


def test_a_status_counts_once_however_often_it_is_looked_at() -> None:
    fleet = Fleet(a={0, 1, 2, 3}).say(a=HALF_OPEN, probes=1)
    assert fleet.ask() == LANE
    assert fleet.look().ask() == []
    assert fleet.say(NOON + 2_000, a=HALF_OPEN, probes=1).ask() == LANE


def test_probes_go_to_the_worker_that_asked_for_them_and_the_rest_to_the_others() -> None:
    fleet = Fleet(a={0}, b={1}, c={2, 3}).say(a=HALF_OPEN, b=CLOSED, c=CLOSED, probes=2)
    assert [fleet.ask() for _ in range(3)] == [[0], [0], [1, 2, 3]]


def test_a_half_open_worker_without_the_lane_gets_no_probe_of_it() -> None:
    assert Fleet(a={8}).say(a=HALF_OPEN).ask() == []


def test_two_half_open_workers_both_get_their_probes() -> None:
    fleet = Fleet(a={0, 1}, b={2, 3}).say(a=HALF_OPEN, b=HALF_OPEN, probes=1)
    assert [fleet.ask() for _ in range(3)] == [[0, 1], [2, 3], []]


def test_a_closed_breaker_makes_it_well_at_once() -> None:
    fleet = Fleet(a={0, 1, 2, 3}).say(a=OPEN)
    assert fleet.say(NOON + 1, a=CLOSED).ask() == LANE


def test_an_open_component_is_remembered_for_a_while_when_its_worker_is_gone() -> None:
    fleet = Fleet(a={0, 1, 2, 3}).say(a=OPEN)
    assert fleet.vanish(NOON + REMEMBERED_MS).ask() == []
    assert fleet.vanish(NOON + REMEMBERED_MS + 1).ask() == LANE


def test_what_is_remembered_ends_when_a_new_worker_speaks() -> None:
    fleet = Fleet(a={0, 1, 2, 3}).say(a=HALF_OPEN)
    assert fleet.vanish(NOON + 20_000).ask() == [], "nobody is there to be probed"
    assert fleet.say(NOON + 20_000, b=CLOSED).ask() == LANE
