"""Which queues a budget keeps asleep, from what was learned of them."""

import pytest

from schemas.models import Backend, ModelClass, Scaling, SimulatedEngine, queues
from schemas.tasks import Price
from services.autoscaler.domain.budget import affordable
from services.autoscaler.domain.learned import NOTHING_LEARNED, LearnedQueue, LearnedState
from services.autoscaler.domain.season import Learned
from services.autoscaler.domain.watched import Watched


def watched(budget_usd_hour: float | None, *pipelines: set[str], **tiers: str) -> Watched:
    """Classes of these tiers; a warm worker costs a dollar an hour, so one that sleeps ten cents."""
    backend = Backend(name="local", engine=SimulatedEngine(kind="simulated"), price=Price(replica_hour_usd=1.0))
    classes = {
        name: ModelClass(backends=(backend,), scaling=Scaling.model_validate({"tier": tier, "cooldown": 300_000}))
        for name, tier in tiers.items()
    }
    return Watched(tuple(queues(classes)), (), tuple(map(frozenset, pipelines)), budget_usd_hour)


def learned(**loads: tuple[float, float]) -> LearnedState:
    """By class: calls an hour, and the seconds that a load takes."""
    return LearnedState(
        queues={
            name: LearnedQueue(start_s=load_s, day=(Learned(0, per_hour / 3_600, 3),))
            for name, (per_hour, load_s) in loads.items()
        }
    )


def test_without_a_budget_the_configuration_decides() -> None:
    assert affordable(watched(None, llm="standby"), learned(llm=(5, 60))) == {}


def test_without_any_history_too() -> None:
    assert affordable(watched(1.0, llm="standby"), NOTHING_LEARNED) == {}


def test_the_money_goes_to_what_saves_most_waiting() -> None:
    found = affordable(watched(0.1, llm="zero", sql="standby"), learned(llm=(5, 150), sql=(5, 2)))
    assert found == {"llm": "standby", "sql": "zero"}


def test_what_is_always_warm_costs_none_of_it() -> None:
    found = affordable(watched(0.1, llm="always", sql="zero"), learned(llm=(5, 150), sql=(5, 2)))
    assert found == {"sql": "standby"}


def test_what_is_called_all_the_time_never_is_cold() -> None:
    found = affordable(watched(0.1, busy="standby", rare="standby"), learned(busy=(3_600, 60), rare=(5, 10)))
    assert found == {"busy": "zero", "rare": "standby"}


@pytest.mark.parametrize(("together", "chosen"), [(True, "llm"), (False, "embedding")])
def test_what_loads_while_something_slower_does_is_not_waited_for(together: bool, chosen: str) -> None:
    pipelines = [{"embedding", "llm"}] if together else [{"embedding"}, {"llm"}]
    found = affordable(
        watched(0.1, *pipelines, embedding="zero", llm="zero"), learned(embedding=(8, 30), llm=(1, 40))
    )
    assert [label for label, tier in found.items() if tier == "standby"] == [chosen]


def test_a_queue_of_which_nothing_is_known_keeps_its_part_of_the_budget() -> None:
    found = affordable(watched(0.1, new="standby", sql="zero"), learned(sql=(5, 2)))
    assert found == {"sql": "zero"}
