"""What a host keeps: what it was ordered, or what is configured; never what it does not know or may not run."""

from typing import Any

from schemas.definitions import definition_of
from schemas.fleet import Kept
from schemas.models import ModelsFile, Queue, queues
from services.host.domain.orders import Order
from services.host.domain.replicas import Replica
from services.host.domain.wishes import Wishes, allowed, unknown, wishes


def configured(classes: dict[str, Any]) -> list[Queue]:
    return list(queues(ModelsFile.model_validate({"model_classes": classes}).model_classes))


def model_class(**scaling: Any) -> dict[str, Any]:
    return {"backends": [{"name": "local", "engine": {"kind": "simulated"}}], "scaling": scaling}


def order(**kept: Kept) -> Order:
    return Order(7, 1_000, kept)


def names(wanted: Wishes) -> list[str]:
    return [replica.name for replica in wanted]


FOUND = configured({"llm": model_class(min_replicas=2), "embedding": model_class()})


def test_without_an_order_every_queue_has_its_minimum() -> None:
    backends = [
        {"name": "local", "engine": {"kind": "simulated"}, "scaling": {"min_replicas": 2}},
        {"name": "burst", "engine": {"kind": "simulated"}},
    ]
    _, burst = found = configured({"llm": {"backends": backends}})
    wanted = wishes(found, None)
    assert names(wanted) == ["llm-0", "llm-1", "llm.burst-0"]
    assert wanted[Replica("llm.burst", 0, definition_of(burst))].queue.backend == "burst"


def test_slow_classes_come_first() -> None:
    found = configured({"embedding": model_class() | {"rank": "fast"}, "llm": model_class(), "sql": model_class()})
    assert names(wishes(found, None)) == ["llm-0", "sql-0", "embedding-0"]


def test_without_an_order_a_class_of_tier_zero_has_none() -> None:
    assert wishes(configured({"llm": model_class(tier="zero")}), None) == {}
    assert names(wishes(configured({"llm": model_class(tier="standby")}), None)) == ["llm-0"]


def test_an_order_is_followed_instead_of_the_configuration() -> None:
    assert names(wishes(FOUND, order(llm=Kept(warm=1)))) == ["llm-0"]
    assert names(wishes(FOUND, order(embedding=Kept(warm=3)))) == ["embedding-0", "embedding-1", "embedding-2"]
    assert wishes(FOUND, order()) == {}


def test_of_what_sleeps_the_first_numbers_are_awake() -> None:
    wanted = wishes(FOUND, order(llm=Kept(warm=1, asleep=2)))
    assert [(replica.name, wish.asleep) for replica, wish in wanted.items()] == [
        ("llm-0", False), ("llm-1", True), ("llm-2", True),
    ]  # fmt: skip


def test_an_order_for_more_than_there_may_ever_be_is_followed_as_far_as_there_may() -> None:
    assert len(wishes(configured({"llm": model_class(max_replicas=3)}), order(llm=Kept(warm=1_000_000)))) == 3


def test_what_is_not_known_here_is_not_started() -> None:
    asked = order(lm=Kept(warm=2), embedding=Kept(warm=1), gone=Kept())
    assert names(wishes(FOUND, asked)) == ["embedding-0"]
    assert list(unknown(FOUND, asked)) == ["lm"]


def test_only_allowed_classes_run_here() -> None:
    assert [queue.label for queue in allowed(FOUND, ["embedding"])] == ["embedding"]
    assert allowed(FOUND, ["unknown"]) == []
    assert allowed(FOUND, ()) == FOUND
