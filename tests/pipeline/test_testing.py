"""`headway.testing` runs a folder's pipelines in process, as the services would."""

from pathlib import Path

import pytest

import headway.cli
from headway.testing import in_process
from schemas.base import RunStatus
from schemas.errors import ErrorCode
from services.chassis.config.problems import ConfigError

TEMPLATE = Path(headway.cli.__file__).parent / "init_template"


async def test_the_template_of_a_new_folder_greets() -> None:
    async with in_process(TEMPLATE) as plane:
        response = await plane.run("hello", {"name": "Ada"})
        assert response.status is RunStatus.SUCCEEDED
        assert response.output["greeting"] == "Hello, Ada!"
        log = [event.type for event in plane.events(response.run_id)]
        assert (log[0], log[-1]) == ("run-started", "run-finished")
        assert log.count("step-completed") == 3


async def test_a_class_answers_what_the_test_says() -> None:
    async with in_process(TEMPLATE, answers={"writer": {"text": "so kind"}}) as plane:
        response = await plane.run("hello", {"name": "Ada"})
        assert response.output["compliment"] == "so kind"


async def test_runs_beside_each_other_do_not_meet() -> None:
    async with in_process(TEMPLATE) as plane:
        for name in ("Ada", "Grace"):
            assert (await plane.run("hello", {"name": name})).output["greeting"] == f"Hello, {name}!"


async def test_a_gate_and_a_refusal_end_as_they_would_in_production() -> None:
    async with in_process(TEMPLATE) as plane:
        assert (await plane.run("hello", {"name": "Voldemort"})).status is RunStatus.BLOCKED
        refused = await plane.run("hello", {"nam": "Ada"})
        assert refused.error is not None
        assert refused.error.code is ErrorCode.INVALID_INPUT


async def test_a_deadline_ends_a_run() -> None:
    async with in_process(TEMPLATE) as plane:
        assert (await plane.run("hello", {"name": "Ada"}, deadline_s=0.001)).status is RunStatus.EXPIRED


async def test_a_folder_with_errors_names_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"models\.yaml: cannot be read"):
        async with in_process(tmp_path):
            pass


async def test_an_answer_of_an_unknown_class_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no model class wrighter; there are: greetings, writer"):
        async with in_process(TEMPLATE, answers={"wrighter": 1}):
            pass
