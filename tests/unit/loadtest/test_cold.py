"""The plane that is measured from zero, and what is promised of it."""

from pathlib import Path

import pytest

from loadtest import cold
from loadtest.fleet import Said
from loadtest.scenarios import coldstart
from loadtest.steps import Step
from schemas.fleet import Kept, Placement
from services.chassis.config.folder import load_folder

SAID = [Said(2_000, Placement(instance="a", host="h", epoch=1, queues={"llm": Kept(warm=1)}))]


def test_nothing_is_kept_and_every_class_can_be_asked_alone(tmp_path: Path) -> None:
    bundle, problems = load_folder(cold.furnished(tmp_path))
    assert bundle is not None, problems
    scaling = [each.scaling for each in bundle.model_classes.values()]
    assert {(each.tier, each.min_replicas) for each in scaling} == {("zero", 0)}
    called = {pipeline.name: {step.model_class for step in pipeline.steps} - {None} for pipeline in bundle.pipelines}
    for pipeline in (coldstart.SIMULATED, coldstart.REAL):
        assert called[pipeline.name] == pipeline.asked.keys()
        assert all(called[cold.alone(name)] == {name} for name in pipeline.asked)


def test_a_cold_start_is_from_the_placement_to_the_first_task_that_is_done() -> None:
    steps = [Step("code", 1_000, 2_500, 5.0), Step("llm", 1_000, 9_000, 50.0), Step("llm", 1_000, 9_500, 50.0)]
    assert cold.lone_s(SAID, steps, "llm", 1_000) == 7.0
    with pytest.raises(ValueError, match="code"):
        cold.lone_s(SAID, steps, "code", 1_000)


def test_one_request_may_wait_for_its_slowest_start_and_a_tenth() -> None:
    starts = [cold.Start(2.0, 1.0), cold.Start(15.0, 2.0), cold.Start(3.0, 1.0)]
    assert cold.allowed_s(starts, cores=2, service_s=0.5, times=1.1) == pytest.approx(17.0)


def test_no_order_makes_starts_quicker_than_what_all_of_them_compute() -> None:
    starts = [cold.Start(2.0, 2.0), cold.Start(3.0, 2.0), cold.Start(3.0, 2.0), cold.Start(4.0, 4.0)]
    assert cold.allowed_s(starts, cores=2, service_s=0.5, times=1.1) == pytest.approx(6.0)
    assert cold.allowed_s(starts, cores=8, service_s=0.5, times=1.1) == pytest.approx(4.9)
