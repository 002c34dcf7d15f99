"""Messages stay readable: snapshots, golden examples, and the rules of change themselves."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas import compatibility
from schemas.compatibility import MESSAGES, breaking_changes, current, snapshot
from schemas.events import EVENT

EXAMPLES = Path(compatibility.__file__).parent / "examples"


@pytest.mark.parametrize("name", MESSAGES)
def test_no_message_changed_in_a_way_that_older_processes_could_not_survive(name: str) -> None:
    assert list(breaking_changes(snapshot(name), current(name))) == []


@pytest.mark.parametrize("name", MESSAGES)
def test_the_snapshots_are_those_of_the_code(name: str) -> None:
    assert snapshot(name) == current(name), "run python -m schemas.compatibility and commit what it writes"


@pytest.mark.parametrize(
    "file", sorted(EXAMPLES.glob("*/*.json")), ids=lambda file: f"{file.parent.name}/{file.stem}"
)
def test_a_golden_example_is_read_and_written_again_unchanged(file: Path) -> None:
    adapter = MESSAGES[file.parent.name]
    example = json.loads(file.read_text())
    assert json.loads(adapter.dump_json(adapter.validate_json(file.read_text()))) == example


@pytest.mark.parametrize(
    "file", sorted(EXAMPLES.glob("*/*.json")), ids=lambda file: f"{file.parent.name}/{file.stem}"
)
def test_fields_of_a_newer_writer_are_ignored(file: Path) -> None:
    adapter = MESSAGES[file.parent.name]
    example = json.loads(file.read_text())
    assert adapter.validate_python({**example, "from_the_future": {"x": 1}}) == adapter.validate_python(example)


def test_every_message_has_a_golden_example() -> None:
    for name in MESSAGES:
        assert list((EXAMPLES / name).glob("*.json")), name
    types = {json.loads(file.read_text())["type"] for file in (EXAMPLES / "events").glob("*.json")}
    mapping = EVENT.json_schema()["discriminator"]["mapping"]
    assert types == set(mapping)


OLD: dict[str, Any] = {
    "title": "Thing",
    "properties": {"id": {"type": "string"}, "note": {"type": "string", "description": "free"}},
    "required": ["id"],
    "$defs": {"Color": {"enum": ["red"], "type": "string"}},
}


def changed(**properties: Any) -> dict[str, Any]:
    return {**OLD, "properties": {**OLD["properties"], **properties}}


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (changed(id={"type": "integer"}), "Thing.id: its schema changed"),
        ({**OLD, "properties": {"note": OLD["properties"]["note"]}, "required": []}, "Thing.id: removed"),
        ({**changed(extra={"type": "string"}), "required": ["id", "extra"]}, "Thing.extra: new and required"),
        ({**OLD, "required": ["id", "note"]}, "Thing.note: required on one side only"),
        ({**OLD, "$defs": {"Color": {"enum": ["red", "blue"], "type": "string"}}}, "Color: its values changed"),
    ],
)
def test_a_change_that_breaks_somebody_is_named(new: dict[str, Any], why: str) -> None:
    (found,) = breaking_changes(OLD, new)
    assert found.startswith(why)


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        changed(extra={"type": "string"}),
        {**OLD, "properties": {"id": {"type": "string", "description": "now explained"}}},
        {**OLD, "$defs": {**OLD["$defs"], "Shape": {"enum": ["round"]}}},
    ],
)
def test_a_change_that_both_sides_survive_is_allowed(new: dict[str, Any]) -> None:
    assert list(breaking_changes(OLD, new)) == []


def test_a_union_of_messages_may_grow() -> None:
    old = {"title": "Event", "oneOf": [{"$ref": "#/$defs/A"}]}
    assert list(breaking_changes(old, {**old, "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]})) == []


def chosen(**kinds: str) -> dict[str, Any]:
    """A property that is one of several, by its `kind`."""
    return changed(engine={"discriminator": {"propertyName": "kind", "mapping": kinds}, "oneOf": [*kinds.values()]})


def test_a_choice_may_grow_and_loses_nothing() -> None:
    small, large = chosen(onnx="#/$defs/Onnx"), chosen(onnx="#/$defs/Onnx", http="#/$defs/Http")
    assert list(breaking_changes(small, large)) == []
    assert list(breaking_changes(large, small)) == ["Thing.engine: its schema changed"]
    assert list(breaking_changes(changed(engine={"type": "string"}), small)) == ["Thing.engine: its schema changed"]


def test_a_property_called_title_counts() -> None:
    old = changed(title={"type": "string"})
    assert list(breaking_changes(old, changed(title={"type": "integer"}))) == ["Thing.title: its schema changed"]
