"""When a worker is outdated: what it was told at its start is another thing by now."""

from typing import Any

from schemas.definitions import definition_of
from schemas.models import ModelsFile, Queue, queues


def configured(classes: dict[str, Any]) -> list[Queue]:
    return list(queues(ModelsFile.model_validate({"model_classes": classes}).model_classes))


def model_class(**more: Any) -> dict[str, Any]:
    return {"backends": [{"name": "local", "engine": {"kind": "simulated"}}], **more}


def test_what_a_worker_is_told_at_its_start_is_in_the_definition() -> None:
    (queue,) = configured({"llm": model_class()})
    assert definition_of(queue) == definition_of(queue.model_copy())
    assert definition_of(queue) != definition_of(queue.model_copy(update={"slots": 9}))


def test_a_price_or_a_replica_count_restarts_nobody() -> None:
    (cheap,) = configured({"llm": model_class(scaling={"min_replicas": 1})})
    (dear,) = configured({"llm": model_class(scaling={"min_replicas": 2})})
    price = cheap.price.model_copy(update={"call_usd": 9.0})
    assert definition_of(cheap) == definition_of(dear.model_copy(update={"price": price}))


def test_whom_others_spill_over_to_is_not_restarted_when_they_do_so_earlier() -> None:
    (queue,) = configured({"llm": model_class()})
    assert definition_of(queue) == definition_of(queue.model_copy(update={"spill_at": 0.5}))


class LaterQueue(Queue):
    """As a later version of this code may have it."""

    further: int = 7


def test_a_field_that_a_later_version_adds_makes_nobody_outdated() -> None:
    (queue,) = configured({"llm": model_class(slots=9)})
    later = LaterQueue.model_validate(queue.model_dump())
    assert definition_of(later) == definition_of(queue)
    assert definition_of(later.model_copy(update={"further": 8})) != definition_of(queue)
