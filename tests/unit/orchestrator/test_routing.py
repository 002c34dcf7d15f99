"""Which backend a task goes to, by what the fleet says and what was sent; and what it is counted as."""

from collections.abc import Sequence
from typing import Any

import pytest

from schemas.base import Output, Priority
from schemas.fleet import BreakerState, CircuitState, ScalingDecision, WorkerStatus
from schemas.graphs import Step, StepKind, Target
from schemas.joins import StepReady
from schemas.models import ModelsFile, queues
from services.orchestrator.domain.routing import Route, Routing, several_backends
from services.orchestrator.domain.steps import candidates

NOON = 1_700_000_000_000
MODELS: dict[str, Any] = {
    "embedding": {"backends": [{"name": "local", "engine": {"kind": "simulated"}}]},
    "llm": {
        "slots": 4,
        "backends": [
            {"name": "local", "engine": {"kind": "simulated"}, "price": {"replica_hour_usd": 2.0}},
            {"name": "burst", "engine": {"kind": "simulated"}, "price": {"call_usd": 0.001}, "slots": 1_000},
        ],
    },
}
QUEUES = {
    (queue.model_class, queue.backend): queue
    for queue in queues(ModelsFile.model_validate({"model_classes": MODELS}).model_classes)
}
LOCAL, BURST = QUEUES["llm", "local"], QUEUES["llm", "burst"]


def status(backend: str, *, state: str = "warm", slots: int = 4, committed: int = 0, **more: Any) -> WorkerStatus:
    told = {
        "instance": f"{backend}-0", "host": "h", "model_class": "llm", "backend": backend, "state": state, "busy": 0,
        "slots": slots, "service_ms": 2_000, "committed": dict.fromkeys(range(10), committed), **more,
    }  # fmt: skip
    return WorkerStatus.model_validate(told)


OWN, HOSTED = status("local"), status("burst", slots=1_000)


class Plane:
    """A routing, and what it is told."""

    def __init__(self, *workers: WorkerStatus) -> None:
        self.routing = Routing()
        self.hear(*workers)

    def hear(self, *workers: WorkerStatus, now: int = NOON, decisions: Sequence[ScalingDecision] = ()) -> None:
        decided = {decision.queue: decision for decision in decisions}
        self.routing.heard([(now, worker) for worker in workers], QUEUES, now, decided)

    def break_(self, backend: str, *workers: WorkerStatus, state: CircuitState = CircuitState.OPEN) -> None:
        told = BreakerState(
            instance=f"{backend}-0", model_class="llm", backend=backend, state=state,
            probes=2 if state is CircuitState.HALF_OPEN else 0,
        )  # fmt: skip
        self.routing.heard_breakers([(NOON, told)], workers, NOON)

    def fill(self, tasks: int) -> None:
        """That many stand in the interactive lane of the local queue."""
        held = self.routing.outstanding(LOCAL.topic)
        for turn in range(tasks):
            held.sent(LOCAL.lanes.of(Priority.INTERACTIVE)[turn % 4])

    def route(self, budget_s: float = 10.0, backend: str | None = None, model_class: str = "llm") -> Route | None:
        target = Target(model_class=model_class, backend=backend)
        ready = StepReady(
            run_id="0f9f3a6e-1c7f-5a0e-9d57-0c5f0e6b8a11", tenant="acme", task_id="x", pipeline="ask",
            step=Step(id="phrase", kind=StepKind.MODEL), target=target, fallback=0, attempt=1, priority="interactive",
            deadline_at=NOON + 60_000, step_deadline_at=NOON + round(budget_s * 1_000), ready_at=NOON,
        )  # fmt: skip
        return self.routing.route(ready, candidates(ready, QUEUES), Output(value={}), lambda: NOON)

    def backends(self, tasks: int, budget_s: float = 10.0) -> list[str]:
        found = [self.route(budget_s) for _ in range(tasks)]
        return [route.queue.backend for route in found if route]


def test_only_backends_that_may_be_chosen_from_are_looked_after() -> None:
    assert several_backends(QUEUES) == [("llm", "local"), ("llm", "burst")]


def test_a_flood_fills_what_is_paid_anyway_as_far_as_time_allows_and_spills_the_rest() -> None:
    """Of 10 s 80 % may be used: 6 s of waiting are 12 tasks of 2 s on 4 slots, behind the 4 that run."""
    assert Plane(OWN, HOSTED).backends(30) == ["local"] * 16 + ["burst"] * 14


def test_who_has_less_time_spills_earlier() -> None:
    assert Plane(OWN, HOSTED).backends(10, budget_s=2.5) == ["local"] * 4 + ["burst"] * 6
    assert Plane(OWN, HOSTED).backends(10, budget_s=60.0) == ["local"] * 10


def test_what_others_have_sent_counts_too() -> None:
    plane = Plane(OWN, HOSTED)
    plane.fill(100)
    plane.hear(OWN, HOSTED)
    assert plane.backends(1) == ["burst"]


def test_it_comes_back_when_the_queue_is_worked_off() -> None:
    plane = Plane(OWN, HOSTED)
    assert plane.backends(30)[-1] == "burst"
    plane.hear(OWN, HOSTED, now=NOON + 2_000)
    assert plane.backends(1) == ["local"]


def test_only_what_a_cheaper_one_could_not_take_is_spilled() -> None:
    plane = Plane(OWN, HOSTED)
    routes = [plane.route() for _ in range(17)]
    assert [route.spilled for route in routes if route] == [False] * 16 + [True]


def test_a_step_that_names_its_backend_has_it() -> None:
    plane = Plane(OWN, HOSTED)
    plane.fill(100)
    plane.hear(OWN, HOSTED)
    for backend in ("local", "burst"):
        route = plane.route(backend=backend)
        assert route is not None
        assert (route.queue.backend, route.spilled) == (backend, False)


def test_a_class_with_one_backend_has_it_however_late() -> None:
    route = Plane().route(budget_s=-1.0, model_class="embedding")
    assert route is not None
    assert (route.queue.topic, route.spilled) == ("inference-tasks-embedding", False)


def test_the_first_is_taken_while_nothing_is_known() -> None:
    assert Plane().backends(3) == ["local"] * 3


@pytest.mark.parametrize("workers", [[HOSTED], [HOSTED, status("local", state="starting")]])
def test_a_backend_without_a_worker_that_is_ready_is_not_thought_to_be_free(workers: list[WorkerStatus]) -> None:
    assert Plane(*workers).backends(1) == ["burst"]
    assert Plane(OWN).backends(1, budget_s=0.1) == ["local"], "late is better than perhaps never"


def test_a_cold_start_that_is_known_is_waited_for_if_there_is_time() -> None:
    plane = Plane(status("local", state="starting"), HOSTED)
    plane.hear(status("local", ready_at=NOON + 5_000), HOSTED, now=NOON + 5_000)
    plane.hear(HOSTED, status("local", state="starting", instance="local-1"), now=NOON + 60_000)
    assert plane.backends(1, budget_s=9.0) == ["local"]
    assert plane.backends(1, budget_s=8.0) == ["burst"]


def test_an_open_breaker_is_passed_by_whatever_was_offered() -> None:
    plane = Plane(OWN, HOSTED)
    plane.break_("local", OWN, HOSTED)
    route = plane.route()
    assert route is not None
    assert (route.queue.backend, route.spilled) == ("burst", True)


def test_one_that_is_late_is_better_than_one_whose_breaker_is_open() -> None:
    plane = Plane(OWN, HOSTED)
    plane.fill(100)
    plane.hear(OWN, HOSTED)
    plane.break_("burst", OWN, HOSTED)
    assert plane.backends(1) == ["local"]


def test_nobody_has_it_when_all_breakers_are_open() -> None:
    plane = Plane(OWN, HOSTED)
    told = [
        (NOON, BreakerState(instance=f"{of}-0", model_class="llm", backend=of, state=CircuitState.OPEN))
        for of in ("local", "burst")
    ]
    plane.routing.heard_breakers(told, [OWN, HOSTED], NOON)
    assert plane.route() is None


def test_probes_are_spent_on_tasks_that_go_there_only() -> None:
    plane = Plane(OWN, HOSTED)
    plane.break_("burst", OWN, HOSTED, state=CircuitState.HALF_OPEN)
    assert plane.backends(16) == ["local"] * 16
    assert plane.backends(3) == ["burst", "burst", "local"]


# ---- backends without workers ----


def scaled(backend: str, *, start_s: float | None = 2.0, unplaced: int = 0) -> ScalingDecision:
    label = "llm" if backend == "local" else f"llm.{backend}"
    return ScalingDecision(
        instance="autoscaler", epoch=1, queue=label, replicas=unplaced, unplaced=unplaced, start_s=start_s, because=""
    )


def backlogged(*decisions: ScalingDecision, workers: Sequence[WorkerStatus] = (OWN,), tasks: int = 100) -> Plane:
    """A minute of work waits for the local backend; nobody works at the other one."""
    plane = Plane(OWN)
    plane.fill(tasks)
    plane.hear(*workers, decisions=decisions)
    return plane


@pytest.mark.parametrize("workers", [[OWN], [OWN, status("burst", state="asleep")]], ids=["at zero", "asleep"])
def test_a_backlog_spills_to_where_an_autoscaler_starts_a_worker_for_it(workers: list[WorkerStatus]) -> None:
    assert backlogged(workers=workers).backends(1) == ["local"], "nobody says that one would be started"
    assert backlogged(scaled("burst"), workers=workers).backends(1) == ["burst"]


def test_what_would_be_ready_no_sooner_than_the_backlog_is_worked_off_is_not_started() -> None:
    assert backlogged(scaled("burst", start_s=60.0)).backends(1) == ["local"]


def test_the_first_start_ever_is_worth_a_task_that_would_wait_for_long() -> None:
    assert backlogged(scaled("burst", start_s=None)).backends(1) == ["burst"]
    assert backlogged(scaled("burst", start_s=None), tasks=20).backends(1) == ["local"]


def test_what_finds_no_room_is_not_waited_for() -> None:
    assert backlogged(scaled("burst", unplaced=1)).backends(1) == ["local"]


def test_none_is_started_while_one_that_works_is_in_time_however_dear() -> None:
    plane = Plane()
    plane.hear(HOSTED, decisions=[scaled("local"), scaled("burst")])
    assert plane.backends(1) == ["burst"]


def test_where_nobody_works_the_cheapest_that_can_start_in_time_is_started() -> None:
    plane = Plane()
    plane.hear(decisions=[scaled("local", start_s=5.0), scaled("burst")])
    assert plane.backends(1) == ["local"]
    assert plane.backends(1, budget_s=6.0) == ["burst"]


def test_a_start_that_never_comes_is_not_waited_for_again_and_again() -> None:
    plane = backlogged(scaled("burst"))
    assert plane.backends(1) == ["burst"]
    plane.hear(OWN, now=NOON + 5_000, decisions=[scaled("burst")])
    assert plane.backends(1) == ["local"]
    plane.hear(OWN, status("burst", state="starting"), now=NOON + 6_000, decisions=[scaled("burst")])
    assert plane.backends(1) == ["burst"], "a worker starts after all"


def test_what_was_sent_to_a_backend_without_workers_waits_there() -> None:
    plane = backlogged(scaled("burst"))
    held = plane.routing.outstanding(BURST.topic)
    for offset in range(5_000):
        held.sent(BURST.lanes.of(Priority.INTERACTIVE)[0])
        held.acknowledged(BURST.lanes.of(Priority.INTERACTIVE)[0], offset)
    leaves = status("burst", state="draining", service_ms=100_000).model_copy(update={"committed": {}})
    plane.hear(OWN, leaves, decisions=[scaled("burst")])
    assert plane.backends(1) == ["local"]
