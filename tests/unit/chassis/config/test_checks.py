"""Cycles, targets and lanes of configurations that have their shape."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.chassis.config.checks import find_cycles, findings
from services.chassis.config.draft import Draft, DraftPipeline

SIMULATED = {"kind": "simulated"}


def found(pipeline: Any = None, models: Any = None, tenants: Any = None) -> list[tuple[Any, str]]:
    pipelines = [] if pipeline is None else [DraftPipeline("p.yaml", pipeline)]
    draft = Draft(models=models, pipelines=pipelines, tenants=tenants or {})
    return [(finding.path, finding.message) for finding in findings(draft)]


graphs = st.dictionaries(st.sampled_from("abcdefg"), st.sets(st.sampled_from("abcdefg"))).map(
    lambda needs: {step: {other for other in others if other in needs} for step, others in needs.items()}
)


@settings(deadline=None)
@given(graphs)
def test_a_cycle_is_found_exactly_when_there_is_one(needs: dict[str, set[str]]) -> None:
    cycles = list(find_cycles(needs))
    for cycle in cycles:
        for step, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert following in needs[step]
    open_steps = dict(needs)
    while ready := [step for step, others in open_steps.items() if not others & open_steps.keys()]:
        for step in ready:
            del open_steps[step]
    assert bool(cycles) == bool(open_steps)


def test_a_long_chain_is_no_cycle() -> None:
    chain = {f"s{n}": {f"s{n + 1}"} if n < 5_000 else set() for n in range(5_001)}
    assert list(find_cycles(chain)) == []


def test_a_draft_of_any_shape_is_checked_as_far_as_it_can_be_read() -> None:
    assert found({}) == []
    assert found({"name": 1, "version": "x", "steps": "none", "input": [], "output": None}) == []
    assert found({"steps": [1, {}, {"id": 2, "when": 3, "after": 4, "fallback": [5, {"value": "${1}"}]}]}) == []
    assert found({}, models={"a": 1, "b": {"backends": [1, {"name": 2}]}, "c": {"backends": 3}}) == [
        (("models", name), f"no pipeline uses the model class `{name}`") for name in "abc"
    ]
    assert found(models={"a": {"backends": [{"name": "x", "price": 4}]}}) == []
    assert found(tenants={"t": 1, "u": {"ingress_topics": [1, "ok"]}}) == []


def test_a_fallback_has_the_class_of_its_step_unless_it_names_one() -> None:
    models = {name: {"backends": [{"name": backend, "engine": SIMULATED}]} for name, backend in ("ax", "by")}
    step = {
        "id": "s", "model_class": "a", "backend": "x",
        "fallback": [{"backend": "x"}, {"backend": "y"}, {"model_class": "b", "backend": "y"}, {"value": 1}],
    }  # fmt: skip
    assert found({"steps": [step]}, models) == [
        (("pipelines", 0, "steps", 0, "fallback", 1, "backend"), "the model class `a` has no backend `y`")
    ]


def test_a_timeout_is_read_in_both_of_its_forms() -> None:
    def steps(timeout: object) -> list[tuple[Any, str]]:
        return found({"steps": [{"id": "s", "value": 1, "timeout": timeout}]})

    assert steps("14s") == steps(14_999) == [(("pipelines", 0, "steps", 0, "timeout"), "the timeout is below 15 s")]
    assert steps("15s") == steps(15_000) == steps("soon") == steps(None) == []


def test_lanes_are_found_where_they_are_written() -> None:
    def where(model_class: dict[str, Any]) -> list[Any]:
        return [path for path, message in found(models={"m": model_class}) if "a lane too small" in message]

    backend = {"name": "x", "engine": SIMULATED}
    small = {"interactive": "0", "standard": "1-3", "batch": "4"}
    assert where({"backends": [backend], "lanes": small, "scaling": {"max_replicas": 3}}) == [
        ("models", "m", "lanes")
    ]
    assert where({"backends": [{**backend, "lanes": small}], "scaling": {"max_replicas": 3}}) == [
        ("models", "m", "backends", 0, "lanes")
    ]
    assert (
        where({"backends": [{**backend, "scaling": {"max_replicas": 5}}]})
        == [("models", "m", "backends", 0, "scaling", "max_replicas")] * 2
    )
    assert (
        where({"backends": [backend], "scaling": {"max_replicas": 5}})
        == [("models", "m", "scaling", "max_replicas")] * 2
    )
    assert where({"backends": [backend], "lanes": small}) == [("models", "m", "lanes")] * 2
    assert where({"backends": [backend]}) == []
