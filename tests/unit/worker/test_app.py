import pytest

from schemas.models import ModelClass, queues
from services.chassis.settings import SettingsError
from services.worker.app import named


def model_class(rank: str, *backends: str) -> ModelClass:
    engines = [{"name": name, "engine": {"kind": "simulated"}} for name in backends]
    return ModelClass.model_validate({"backends": engines, "rank": rank})


QUEUES = list(queues({"llm": model_class("slow", "local", "burst"), "embedding": model_class("fast", "local")}))


def test_queues_are_found_by_class_and_by_class_and_backend() -> None:
    assert [queue.group for queue in named(QUEUES, ["llm.burst", "llm"])] == [
        "headway-worker-llm.burst",
        "headway-worker-llm",
    ]


def test_fast_classes_come_first_and_a_repeated_name_counts_once() -> None:
    assert [queue.label for queue in named(QUEUES, ["llm", "embedding", "llm"])] == ["embedding", "llm"]


def test_an_unknown_class_is_named_with_those_that_exist() -> None:
    with pytest.raises(SettingsError, match=r"no model class lm, x; configured are: embedding, llm, llm\.burst"):
        named(QUEUES, ["lm", "llm", "x"])


def test_none_at_all_is_no_worker() -> None:
    with pytest.raises(SettingsError, match="no model class given"):
        named([], [])
