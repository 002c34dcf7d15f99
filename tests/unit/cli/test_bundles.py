"""Configurations side by side: what differs, what moves, and what is left without models."""

from typing import Any

import pytest

from headway.cli.bundles import changes, classes_with_models, moved_partitions, without_models
from schemas.config import Bundle
from schemas.models import ModelClass, SimulatedEngine

PIPELINE = {"name": "ask", "steps": [{"id": "a", "model_class": "llm"}], "output": "${steps.a}"}


def model_class(engine: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"backends": [{"name": "local", "engine": engine or {"kind": "simulated"}}], **more}


def bundle(pipeline: dict[str, Any] | None = None, **classes: dict[str, Any]) -> Bundle:
    return Bundle.model_validate({"pipelines": [pipeline or PIPELINE], "model_classes": classes})


def classes(**lanes: str) -> dict[str, ModelClass]:
    return dict(bundle(llm=model_class(lanes=lanes)).model_classes)


def moved(old: dict[str, ModelClass], new: dict[str, ModelClass]) -> list[int]:
    return [partition for _, partitions in moved_partitions(old, new) for partition in partitions]


def test_equal_configurations_do_not_differ_however_they_are_written() -> None:
    spelled = bundle(PIPELINE | {"version": 1, "priority": "standard"}, llm=model_class(slots=4))
    assert list(changes(bundle(llm=model_class()), spelled)) == []


def test_what_is_added_removed_or_changed_is_named_with_its_lines() -> None:
    old = bundle(llm=model_class(slots=4), tools=model_class())
    new = bundle(PIPELINE | {"version": 2}, llm=model_class(slots=8), sql=model_class())
    found = {(change.name, change.change): change.lines for change in changes(old, new)}
    assert set(found) == {
        ("ask@1", "removed"), ("ask@2", "added"), ("llm", "changed"), ("tools", "removed"), ("sql", "added"),
    }  # fmt: skip
    assert [line.strip() for line in found["llm", "changed"] if line[0] in "+-"] == ["+slots: 8"]


def test_new_partitions_at_the_end_of_a_lane_move_nothing() -> None:
    assert moved(classes(), classes(interactive="0-3,10-11", standard="4-7", batch="8-9")) == []


@pytest.mark.parametrize(
    ("lanes", "partitions"),
    [
        ({"interactive": "0-4", "standard": "5-7", "batch": "8-9"}, [4]),
        ({"interactive": "8-9,0-1", "standard": "4-7", "batch": "2-3"}, [2, 3, 8, 9]),
    ],
)
def test_partitions_that_change_their_lane_are_found(lanes: dict[str, str], partitions: list[int]) -> None:
    assert moved(classes(), classes(**lanes)) == partitions


def test_a_class_that_goes_leaves_all_its_partitions() -> None:
    assert moved(classes(), {}) == list(range(10))


def test_without_models_only_real_models_are_replaced() -> None:
    whole = bundle(
        llm=model_class({"kind": "llamacpp", "model": "m"}),
        embedding=model_class({"kind": "onnx", "model": "m"}),
        tools=model_class({"kind": "function", "callable": "a:b"}),
    )
    assert classes_with_models(whole) == ["llm", "embedding"]
    left = without_models(whole).model_classes
    assert isinstance(left["llm"].backends[0].engine, SimulatedEngine)
    assert left["tools"] == whole.model_classes["tools"]
    assert classes_with_models(without_models(whole)) == []
